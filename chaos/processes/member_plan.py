"""What a member process of a group is to be, as it is given to it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Literal

from quorumlog.chaos.processes.scenario_cluster import ClientOptions


@dataclass(slots=True, frozen=True)
class MemberPlan:
    """What a member is and does.

    Arguments:
        log: the file that it writes.
        topic: subscribed to by name, or where ``by_pattern`` by a pattern that only it matches.
        instance: its static name; empty for a dynamic member.
        commit_every: polls with records between two commits.
        asynchronous: whether commits are waited for.
        work_ms: how long it works on the records of one poll.
        kafka_options: how librdkafka reaches the nodes; empty for a member by our own client.
        kafka_assignor: how it wants partitions to be shared out then, unless its coordinator assigns
            (``kafka_protocol``).
        awaits_signal: whether it joins only at SIGUSR1, with all that a process does at its start behind it.
    """

    clients: ClientOptions
    group: str
    log: str
    topic: str
    by_pattern: bool = False
    instance: str = ""
    assignor: Literal["uniform", "range"] = "uniform"
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    max_poll_records: int = 500
    commit_every: int = 1
    asynchronous: bool = False
    work_ms: int = 0
    kafka_options: dict[str, str] = field(default_factory=dict)
    kafka_assignor: str = "range"
    kafka_protocol: Literal["classic", "consumer"] = "classic"
    awaits_signal: bool = False

    def as_argument(self) -> str:
        """As the program takes it."""
        return json.dumps(asdict(self))
