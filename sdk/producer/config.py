"""Validated options of a producer, with Kafka's names and defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from quorumlog.sdk.cluster.cluster import DEFAULT_BOOTSTRAP_SERVERS, parse_bootstrap_servers
from quorumlog.sdk.configuration import check_range
from quorumlog.sdk.errors import IllegalArgumentError
from quorumlog.sdk.records.partitioner import Partitioner, check_partitioner
from quorumlog.sdk.records.record_batch import BATCH_BASE_BYTES, codec_named
from quorumlog.sdk.runtime.security import ClientSecurity, SecurityOptions
from quorumlog.sdk.types import TransactionToken
from quorumlog.wire.entry import FIRST_NAMED_PRODUCER_ID, SEQUENCE_MODULUS

Serializer = Callable[[Any], bytes | None]

#: The wire's value for acks="all".
ACKS_ALL = -1


class ProducerOptions(SecurityOptions, total=False):
    """Keyword arguments of ``Producer`` and ``AsyncProducer``; :class:`~quorumlog.sdk.Producer` documents them."""

    bootstrap_servers: str | Sequence[str]
    acks: Literal[0, 1, -1, "all"]
    linger_ms: float
    batch_size: int
    buffer_memory: int
    max_block_ms: float
    max_request_size: int
    compression_type: str | None
    enable_idempotence: bool | None
    max_in_flight: int
    delivery_timeout_ms: float
    request_timeout_ms: float
    retry_backoff_ms: float
    retry_backoff_max_ms: float
    bootstrap_timeout_ms: float
    metadata_max_age_ms: float
    partitioner: Partitioner
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    client_id: str
    producer_name: str | None
    producer_epoch: int | None
    epoch_records: Mapping[tuple[str, int], int] | None
    producer_id: int | None
    transactional_id: str | None
    transaction_timeout_ms: int
    joins: TransactionToken | None


@dataclass(slots=True, frozen=True)
class ProducerConfig(ClientSecurity):
    """Validated :class:`ProducerOptions` with defaults.

    Raises:
        IllegalArgumentError: an option is invalid.
    """

    bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP_SERVERS
    acks: Literal[0, 1, -1, "all"] = "all"
    linger_ms: float = 100
    batch_size: int = 1024 * 1024
    buffer_memory: int = 32 * 1024 * 1024
    max_block_ms: float = 60_000
    max_request_size: int = 1024 * 1024
    compression_type: str | None = None
    enable_idempotence: bool | None = None
    max_in_flight: int = 5
    delivery_timeout_ms: float = 120_000
    request_timeout_ms: float = 30_000
    retry_backoff_ms: float = 20
    retry_backoff_max_ms: float = 500
    bootstrap_timeout_ms: float = 3_000
    metadata_max_age_ms: float = 300_000
    partitioner: Partitioner = "sticky"
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    client_id: str = "quorumlog-producer"
    producer_name: str | None = None
    producer_epoch: int | None = None
    epoch_records: Mapping[tuple[str, int], int] | None = None
    producer_id: int | None = None
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000
    joins: TransactionToken | None = None

    def __post_init__(self) -> None:
        parse_bootstrap_servers(self.bootstrap_servers)
        self.check_security()
        if self.acks not in (0, 1, -1, "all"):
            raise IllegalArgumentError(f"acks is {self.acks!r}: choose 0, 1 or 'all'")
        if self.enable_idempotence and self.wire_acks != ACKS_ALL:
            raise IllegalArgumentError(f"enable_idempotence needs acks='all', not {self.acks!r}")
        codec_named(self.compression_type)
        check_partitioner(self.partitioner)
        check_range(self, "linger_ms", 0, 60_000)
        check_range(self, "batch_size", 0, 64 * 1024 * 1024)
        check_range(self, "max_request_size", 1024, 64 * 1024 * 1024)  # Nodes accept messages of twice that size.
        check_range(self, "buffer_memory", self.max_request_size + BATCH_BASE_BYTES, 64 * 1024**3)
        check_range(self, "max_block_ms", 0, 24 * 3_600_000)
        # The log keeps a producer's last five batches per partition; a resent sixth could not be recognised as a
        # duplicate.
        check_range(self, "max_in_flight", 1, 5)
        check_range(self, "metadata_max_age_ms", 10, 24 * 3_600_000)
        check_range(self, "request_timeout_ms", 1, 3_600_000)
        check_range(self, "delivery_timeout_ms", 1, 24 * 3_600_000)
        check_range(self, "retry_backoff_ms", 1, 60_000)
        check_range(self, "retry_backoff_max_ms", self.retry_backoff_ms, 60_000)
        check_range(self, "bootstrap_timeout_ms", 1, 3_600_000)
        check_range(self, "transaction_timeout_ms", 1, 24 * 3_600_000)
        self._check_transactions()
        self._check_identity()

    def _check_transactions(self) -> None:
        name, joins = self.transactional_id, self.joins
        if name is not None and not (isinstance(name, str) and 1 <= len(name) <= 249 and name.isprintable()):
            raise IllegalArgumentError(f"transactional_id is {name!r}: give 1 to 249 printable characters")
        if joins is not None and not isinstance(joins, TransactionToken):
            raise IllegalArgumentError(f"joins is {joins!r}: give the token of a transaction")
        given = [each for each in ("transactional_id", "joins", "producer_name") if getattr(self, each) is not None]
        if len(given) > 1:
            raise IllegalArgumentError(f"{given[0]} and {given[1]} exclude each other: choose one")
        if self.transaction_id and not self.idempotent:
            raise IllegalArgumentError(f"{given[0]} needs acks='all' and enable_idempotence")

    def _check_identity(self) -> None:
        name, epoch = self.producer_name, self.producer_epoch
        if name is not None and not (isinstance(name, str) and 1 <= len(name) <= 249 and name.isprintable()):
            raise IllegalArgumentError(f"producer_name is {name!r}: give 1 to 249 printable characters")
        if name is not None and not self.idempotent:
            raise IllegalArgumentError("producer_name needs acks='all' and enable_idempotence")
        records = self.epoch_records
        if records is not None and not (isinstance(records, Mapping) and all(map(_is_count, records.values()))):
            raise IllegalArgumentError(f"epoch_records is {records!r}: give numbers of records by (topic, partition)")
        known = self.producer_id
        if known is not None and not (isinstance(known, int) and FIRST_NAMED_PRODUCER_ID <= known < 1 << 63):
            raise IllegalArgumentError(f"producer_id is {known!r}: give the id that a claim was answered with")
        if epoch is None:
            if records is not None or known is not None:
                which = "epoch_records" if records is not None else "producer_id"
                raise IllegalArgumentError(f"{which} needs a producer_epoch")
            return
        if name is None:
            raise IllegalArgumentError("producer_epoch needs a producer_name")
        if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch < 1 << 63:
            raise IllegalArgumentError(f"producer_epoch is {epoch!r}: it must be a whole number from 0 to 2^63 - 1")

    @property
    def transaction_id(self) -> str:
        """The transactional id of all that is sent; empty outside of transactions."""
        return self.joins.transactional_id if self.joins is not None else self.transactional_id or ""

    @property
    def replayable(self) -> bool:
        """True if the same epoch may be sent again from its start."""
        return self.producer_epoch is not None

    @property
    def wire_acks(self) -> int:
        """``acks`` on the wire: 0, 1 or -1 (all)."""
        return ACKS_ALL if self.acks == "all" else self.acks

    @property
    def idempotent(self) -> bool:
        """True if batches carry sequence numbers."""
        return self.wire_acks == ACKS_ALL if self.enable_idempotence is None else self.enable_idempotence


def _is_count(records: object) -> bool:
    return isinstance(records, int) and not isinstance(records, bool) and 0 <= records < SEQUENCE_MODULUS
