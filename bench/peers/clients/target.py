"""Target of a client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True, frozen=True)
class Target:
    """A topic of one peer, and how to use it.

    Arguments:
        servers: ``host:port`` of every server, separated by commas.
        topic: its name; a peer without topics makes of it what comes closest.
        partitions: of the topic.
        configs: of the topic, beside the peer's defaults.
        options: of the client, beside its defaults.
    """

    servers: str
    topic: str
    partitions: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)


class LoadFailedError(Exception):
    """A peer did not do what the load asks of it."""


#: A client that gets nothing for this long has lost the log.
SILENCE_S = 30.0
#: What a client waits for a leader, an acknowledgement or a connection.
PATIENCE_S = 60.0
