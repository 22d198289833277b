"""Configuration of a member process of a group, as it is passed to it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Literal

from quorumlog.chaos.processes.scenario_cluster import ClientOptions


@dataclass(slots=True, frozen=True)
class MemberPlan:
    """Configuration of a member.

    Arguments:
        log: the file that it writes.
        topic: subscribed to by name, or if ``by_pattern`` by a pattern that only it matches.
        instance: its static name; empty for a dynamic member.
        commit_every: polls with records between two commits.
        asynchronous: True if commits are not waited for.
        work_ms: time that it works on the records of one poll.
        kafka_options: connection settings of librdkafka; empty for a member with our own client.
        kafka_assignor: librdkafka's assignment strategy, unless the coordinator assigns (``kafka_protocol``).
        awaits_signal: True if it joins only on SIGUSR1, after the startup of its process.
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
        """Returns the plan as a command-line argument."""
        return json.dumps(asdict(self))
