"""``cluster.json``: the state of a local cluster in its data directory, for later processes."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

#: Maximum number of nodes of one local cluster.
MAX_NODES = 64
#: Maximum number of members, with all workers.
MAX_PROCESSES = 256
FILE_NAME = "cluster.json"


@dataclass(slots=True)
class NodeRecord:
    """One node.

    ``pid`` and ``started`` identify its process, None and empty while it does not run. ``peer_address`` is where it
    serves its peers; empty without TLS, where that is ``address``. ``kafka_address`` is where it serves Kafka's
    clients; empty if it does not.
    """

    node_id: int
    address: str
    pid: int | None = None
    started: str = ""
    peer_address: str = ""
    kafka_address: str = ""


@dataclass(slots=True)
class ClusterState:
    """A cluster: its nodes, which of them are controllers, settings of all nodes, environment, workers of each node."""

    nodes: list[NodeRecord]
    controllers: list[int]
    settings: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    workers: int = 1

    def save(self, data_dir: Path) -> None:
        """Writes the file atomically."""
        path = data_dir / FILE_NAME
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self), indent=2) + "\n")
        os.replace(fresh, path)

    @classmethod
    def load(cls, data_dir: Path) -> ClusterState | None:
        """Reads the file; None if the directory has no cluster.

        Raises:
            ValueError: the file is not what ``save`` wrote.
        """
        try:
            parsed = json.loads((data_dir / FILE_NAME).read_text())
            nodes = [NodeRecord(**node) for node in parsed["nodes"]]
            # Files of earlier versions have no workers.
            return cls(nodes, parsed["controllers"], parsed["settings"], parsed["env"], parsed.get("workers", 1))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{data_dir / FILE_NAME} cannot be read: {error}; remove it, or restore it") from None
