"""Validated options of writes, with the names and meanings of Spark's Kafka sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quorumlog.sdk.spark.errors import OptionError
from quorumlog.sdk.spark.option_values import GivenOptions

_CODECS = ("none", "lz4", "zstd")
#: With a suffix appended, it is the name of a producer.
_MAX_TRANSACTION_ID = 200
#: What a cluster allows.
_MAX_TRANSACTION_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a write.

    Attributes:
        topic: of all rows; None if a column names it.
        transaction_id: names a batch query that is written exactly once; None: it is written at least once.
        compression: none, lz4 or zstd.
        transaction_epoch: number of the job among successive jobs with the same ``transaction_id``.
        transactional: write exactly once, and all rows of a micro-batch or job become visible at once; otherwise at
            least once.
        transaction_timeout_ms: how long such a transaction may be open.
    """

    bootstrap_servers: str
    topic: str | None
    transaction_id: str | None
    compression: str
    transaction_epoch: int = 0
    transactional: bool = False
    transaction_timeout_ms: int = 900_000


def parse_write_options(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Validates and parses a writer's options.

    Raises:
        OptionError: an option is missing, unknown, malformed, or does not apply to this kind of write.
    """
    parsed = GivenOptions(options)
    if streaming:
        parsed.refuse_all_but("a write", "a streaming write")
    else:
        parsed.refuse_all_but("a write", "a batch write")
    topic = parsed.text("topic").strip()
    if "topic" in parsed and not topic:
        raise OptionError("option topic is empty: name a topic, or leave it out and give a column 'topic'")
    transaction_id = parsed.text("transactionId")
    if "transactionId" in parsed and not (
        1 <= len(transaction_id) <= _MAX_TRANSACTION_ID and transaction_id.isprintable()
    ):
        raise OptionError(f"option transactionId must have 1 to {_MAX_TRANSACTION_ID} printable characters")
    transaction_epoch = parsed.number("transactionEpoch", least=0)
    if transaction_epoch is not None and not transaction_id:
        raise OptionError("option transactionEpoch is the number of a job under a transactionId: give that too")
    compression = parsed.text("compression", "none").strip().lower()
    if compression not in _CODECS:
        raise OptionError(f"option compression is {parsed.text('compression')!r}: choose one of {', '.join(_CODECS)}")
    transactional = parsed.boolean("transactional", default=streaming or bool(transaction_id))
    if transactional and not streaming and not transaction_id:
        raise OptionError("option transactional is for jobs with a transactionId: give that too")
    if transaction_id and not transactional:
        raise OptionError("option transactional is false, and a job with a transactionId is one: leave one of them out")
    if "transactionTimeout" in parsed and not transactional:
        raise OptionError(
            "option transactionTimeout is for transactions: streams without transactional=false, and jobs with a"
            " transactionId"
        )
    timeout_ms = parsed.duration_ms("transactionTimeout", "15m")
    if not 1_000 <= timeout_ms <= _MAX_TRANSACTION_MS:
        raise OptionError(f"option transactionTimeout is {parsed.text('transactionTimeout')!r}: give 1s to 1h")
    return WriteOptions(
        parsed.bootstrap_servers(),
        topic or None,
        transaction_id or None,
        compression,
        transaction_epoch or 0,
        transactional,
        timeout_ms,
    )
