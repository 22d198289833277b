"""Nodes as an operator has them: one on each machine, some of which do not exist yet, each with its own settings."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Self

from command_line import cli_here, until

from quorumlog.local import LocalCluster

#: Where node N listens in the documents, and where it keeps its data.
_ADDRESS = re.compile(r"\b10\.0\.0\.(\d):19092\b")
_DATA_DIR = "/var/lib/quorumlog"
_JOURNAL = "journalctl -u quorumlog -o cat"


class Machines:
    """A cluster whose nodes are started one by one.

    Arguments:
        nodes: how many machines there are.
        up: on how many of them, the first ones, a node runs when the block starts.
        controllers: how many form the cluster.
        racks: of the nodes, the first one's first.
        settings: of all nodes.
        environment: of all nodes, in the beginning.

    Attributes:
        cluster: whose processes they are.
        environment: of each node, from its next start on.
    """

    def __init__(
        self,
        nodes: int,
        *,
        up: int,
        controllers: int = 3,
        racks: str = "",
        settings: dict[str, object] | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.cluster = LocalCluster(nodes=nodes, controllers=controllers, settings=settings)
        self.environment: dict[int, dict[str, str]] = defaultdict(lambda: dict(environment or {}))
        self._racks = racks
        self._up = up

    def __enter__(self) -> Self:
        try:
            for node in range(1, self._up + 1):
                self.start(node)
            self.cluster.wait_ready()
        except BaseException:
            self.cluster.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.__exit__(None, None, None)

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all of them, whether they run or not."""
        return self.cluster.bootstrap_servers

    def data_dir(self, node: int) -> Path:
        """Returns the directory in which a node keeps its data."""
        return self.cluster.data_dir(node)

    def start(self, node: int) -> None:
        """The node's service is started."""
        state = self.cluster._state
        state.env.clear()
        state.env.update(self.environment[node])
        if self._racks:
            state.settings["rack"] = self._racks[node - 1]
        self.cluster.start(node)

    def is_let_in(self, node: int) -> None:
        """Waits until a node that was started counts as up, or says why it waits: who types takes longer than a test to
        continue."""

        def is_seen() -> bool:
            if " returned_empty " in self.cluster.log_path(node).read_text().rpartition(" node_started ")[2]:
                return True
            rows = json.loads(cli_here(self.cluster, "nodes", "list", "-o", "json").stdout or "[]")
            return any(row["node_id"] == node and row["state"].startswith("up") for row in rows)

        until(is_seen, f"node {node} is let in")

    def stop(self, node: int) -> None:
        """The node's service is stopped."""
        self.cluster.stop(node)

    def is_lost(self, node: int) -> None:
        """The machine is gone, with all that was on it."""
        self.cluster.kill(node)

    def as_typed_here(self, text: str, node: int | None) -> str:
        """A command of the documents, as it is typed on this machine.

        Arguments:
            node: at whose machine.
        """
        text = _ADDRESS.sub(lambda found: self.cluster.address(int(found[1])), text)
        if node is None:
            return text
        text = text.replace(_JOURNAL, f"cat {self.cluster.log_path(node)}")
        return text.replace(_DATA_DIR, str(self.data_dir(node)))

    def as_in_page(self, printed: str) -> str:
        """Returns what was printed, as it would be on machines with the addresses and directories of the documents."""
        for node in self.cluster.node_ids:
            here, there = self.cluster.address(node), f"10.0.0.{node}:19092"
            # In a table the columns stay where they are.
            printed = printed.replace(f"{here}  ", there.ljust(len(here) + 2)).replace(here, there)
            printed = printed.replace(str(self.data_dir(node)), _DATA_DIR)
        return "".join(line.rstrip() + "\n" for line in printed.strip("\n").splitlines())
