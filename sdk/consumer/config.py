"""Validated options of a consumer, with Kafka's names and defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from quorumlog.sdk.arguments import is_text
from quorumlog.sdk.cluster.cluster import DEFAULT_BOOTSTRAP_SERVERS, parse_bootstrap_servers
from quorumlog.sdk.configuration import check_range
from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.sdk.isolation import LEVELS, IsolationLevel
from quorumlog.sdk.runtime.security import ClientSecurity, SecurityOptions

Deserializer = Callable[[bytes], Any]
OffsetReset = Literal["earliest", "latest", "none"]
OnCorrupt = Literal["raise", "skip"]


class ConsumerOptions(SecurityOptions, total=False):
    """Keyword arguments of ``Consumer`` and ``AsyncConsumer``; :class:`~quorumlog.sdk.Consumer` documents them."""

    bootstrap_servers: str | Sequence[str]
    group_id: str | None
    group_instance_id: str | None
    client_rack: str | None
    group_assignor: Literal["uniform", "range"] | None
    session_timeout_ms: float
    heartbeat_interval_ms: float
    max_poll_interval_ms: float
    enable_auto_commit: bool
    auto_commit_interval_ms: float
    auto_offset_reset: OffsetReset
    isolation_level: IsolationLevel
    on_corrupt: OnCorrupt
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    fetch_max_bytes: int
    max_poll_records: int
    consumer_timeout_ms: float
    request_timeout_ms: float
    metadata_max_age_ms: float
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    bootstrap_timeout_ms: float
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    client_id: str


@dataclass(slots=True, frozen=True)
class ConsumerConfig(ClientSecurity):
    """Validated :class:`ConsumerOptions` with defaults.

    Raises:
        IllegalArgumentError: an option is invalid.
    """

    bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP_SERVERS
    group_id: str | None = None
    group_instance_id: str | None = None
    client_rack: str | None = None
    group_assignor: Literal["uniform", "range"] | None = None
    session_timeout_ms: float = 45_000
    heartbeat_interval_ms: float = 3_000
    max_poll_interval_ms: float = 300_000
    enable_auto_commit: bool = True
    auto_commit_interval_ms: float = 5_000
    auto_offset_reset: OffsetReset = "earliest"
    isolation_level: IsolationLevel = "read_committed"
    on_corrupt: OnCorrupt = "raise"
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 8 * 1024 * 1024
    fetch_max_bytes: int = 50 * 1024 * 1024
    max_poll_records: int = 500
    consumer_timeout_ms: float = float("inf")
    request_timeout_ms: float = 30_000
    metadata_max_age_ms: float = 300_000
    retry_backoff_ms: float = 20
    retry_backoff_max_ms: float = 500
    bootstrap_timeout_ms: float = 3_000
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    client_id: str = "quorumlog-consumer"

    def __post_init__(self) -> None:
        parse_bootstrap_servers(self.bootstrap_servers)
        self.check_security()
        self._check_group()
        if self.auto_offset_reset not in ("earliest", "latest", "none"):
            raise IllegalArgumentError(
                f"auto_offset_reset is {self.auto_offset_reset!r}: choose earliest, latest or none"
            )
        if not isinstance(self.isolation_level, str) or self.isolation_level not in LEVELS:
            raise IllegalArgumentError(
                f"isolation_level is {self.isolation_level!r}: choose read_committed or read_uncommitted"
            )
        if self.on_corrupt not in ("raise", "skip"):
            raise IllegalArgumentError(f"on_corrupt is {self.on_corrupt!r}: choose raise or skip")
        check_range(self, "fetch_min_bytes", 0, 64 * 1024 * 1024)
        check_range(self, "fetch_max_wait_ms", 0, 60_000)
        check_range(self, "max_partition_fetch_bytes", 1024, 64 * 1024 * 1024)
        check_range(self, "fetch_max_bytes", 1024, 4 * 1024**3 - 1)
        check_range(self, "max_poll_records", 1, 10_000_000)
        check_range(self, "consumer_timeout_ms", 0, float("inf"))
        check_range(self, "request_timeout_ms", 1, 3_600_000)
        check_range(self, "metadata_max_age_ms", 10, 24 * 3_600_000)
        check_range(self, "retry_backoff_ms", 1, 60_000)
        check_range(self, "retry_backoff_max_ms", self.retry_backoff_ms, 60_000)
        check_range(self, "bootstrap_timeout_ms", 1, 3_600_000)

    def _check_group(self) -> None:
        for name in ("group_id", "group_instance_id", "client_rack"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and value and is_text(value)):
                raise IllegalArgumentError(f"{name} is {value!r}: give a string, or None")
        if self.group_instance_id is not None and self.group_id is None:
            raise IllegalArgumentError("group_instance_id is given without group_id: it names a member of a group")
        if self.group_assignor not in (None, "uniform", "range"):
            raise IllegalArgumentError(f"group_assignor is {self.group_assignor!r}: choose uniform or range, or None")
        if not isinstance(self.enable_auto_commit, bool):
            raise IllegalArgumentError(f"enable_auto_commit is {self.enable_auto_commit!r}: it must be True or False")
        check_range(self, "session_timeout_ms", 100, 24 * 3_600_000)
        check_range(self, "heartbeat_interval_ms", 10, 3_600_000)
        check_range(self, "max_poll_interval_ms", 1, 24 * 3_600_000)
        check_range(self, "auto_commit_interval_ms", 1, 24 * 3_600_000)
