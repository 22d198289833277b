"""What a consumer can be told, with Kafka's names and defaults, checked before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from quorumlog.sdk.cluster import DEFAULT_BOOTSTRAP_SERVERS, parse_bootstrap_servers
from quorumlog.sdk.configuration import check_range
from quorumlog.sdk.errors import IllegalArgumentError, UnsupportedError

Deserializer = Callable[[bytes], Any]
OffsetReset = Literal["earliest", "latest", "none"]


class ConsumerOptions(TypedDict, total=False):
    """The keyword arguments of ``Consumer`` and ``AsyncConsumer``.

    bootstrap_servers: ``host:port``, several separated by commas or as a sequence; any node will do.
    group_id: consumer groups are not there yet; leave it None.
    auto_offset_reset: where to begin without a position, or when it is gone: ``"earliest"``, ``"latest"``, or
        ``"none"``, which raises.
    fetch_min_bytes, fetch_max_wait_ms: a node answers when it has that much, or after that time.
    max_partition_fetch_bytes: what one partition may bring per fetch; a larger batch still comes whole.
    fetch_max_bytes: what may be fetched ahead, over all partitions.
    max_poll_records: the most records that one ``poll`` returns.
    consumer_timeout_ms: iteration ends when no record comes for so long; infinite by default.
    request_timeout_ms: how long a look-up may take.
    metadata_max_age_ms: how often to look for new partitions of the topics.
    retry_backoff_ms, retry_backoff_max_ms: shortest and longest pause between attempts.
    bootstrap_timeout_ms: how long to look for any node before giving up.
    key_deserializer, value_deserializer: callables from bytes; not called for None, and not by ``poll_arrow``.
    client_id: what nodes see as the user agent.
    """

    bootstrap_servers: str | Sequence[str]
    group_id: str | None
    auto_offset_reset: OffsetReset
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
class ConsumerConfig:
    """:class:`ConsumerOptions` with defaults filled in, and checked."""

    bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP_SERVERS
    group_id: str | None = None
    auto_offset_reset: OffsetReset = "earliest"
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 2 * 1024 * 1024
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
        if self.group_id is not None:
            raise UnsupportedError(
                "group_id is given, but consumer groups arrive with a later version: leave it out to read all"
            )
        if self.auto_offset_reset not in ("earliest", "latest", "none"):
            raise IllegalArgumentError(
                f"auto_offset_reset is {self.auto_offset_reset!r}: choose earliest, latest or none"
            )
        check_range(self, "fetch_min_bytes", 0, 64 * 1024 * 1024)
        check_range(self, "fetch_max_wait_ms", 0, 60_000)
        check_range(self, "max_partition_fetch_bytes", 1024, 64 * 1024 * 1024)
        check_range(self, "fetch_max_bytes", self.max_partition_fetch_bytes, 4 * 1024**3 - 1)
        check_range(self, "max_poll_records", 1, 10_000_000)
        check_range(self, "consumer_timeout_ms", 0, float("inf"))
        check_range(self, "request_timeout_ms", 1, 3_600_000)
        check_range(self, "metadata_max_age_ms", 10, 24 * 3_600_000)
        check_range(self, "retry_backoff_ms", 1, 60_000)
        check_range(self, "retry_backoff_max_ms", self.retry_backoff_ms, 60_000)
        check_range(self, "bootstrap_timeout_ms", 1, 3_600_000)
