"""The options of a write, checked: names and meanings are those of Spark's Kafka sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from quorumlog.sdk.spark.errors import OptionError
from quorumlog.sdk.spark.option_values import GivenOptions

_CODECS = ("none", "lz4", "zstd")
#: With the number of a task behind it, it is the name of a producer.
_MAX_TRANSACTION_ID = 200


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """A write, as the user asked for it.

    Attributes:
        topic: that all rows go to; None where a column says.
        transaction_id: makes a batch query that is run again add nothing; None without that.
        compression: none, lz4 or zstd.
        transaction_epoch: which of the jobs that go by the same ``transaction_id``, one after the other.
    """

    bootstrap_servers: str
    topic: str | None
    transaction_id: str | None
    compression: str
    transaction_epoch: int = 0


def parse_write_options(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
    """Checks a writer's options and gives them types.

    Raises:
        OptionError: an option is missing, unknown, malformed, or is for something else.
    """
    given = GivenOptions(options)
    if streaming:
        given.refuse_all_but("a write", "a streaming write")
    else:
        given.refuse_all_but("a write", "a batch write")
    topic = given.text("topic").strip()
    if "topic" in given and not topic:
        raise OptionError("option topic is empty: name a topic, or leave it out and give a column 'topic'")
    transaction_id = given.text("transactionId")
    if "transactionId" in given and not (
        1 <= len(transaction_id) <= _MAX_TRANSACTION_ID and transaction_id.isprintable()
    ):
        raise OptionError(f"option transactionId has to have 1 to {_MAX_TRANSACTION_ID} printable characters")
    transaction_epoch = given.number("transactionEpoch", least=0)
    if transaction_epoch is not None and not transaction_id:
        raise OptionError("option transactionEpoch is the number of a job under a transactionId: give that as well")
    compression = given.text("compression", "none").strip().lower()
    if compression not in _CODECS:
        raise OptionError(f"option compression is {given.text('compression')!r}: choose one of {', '.join(_CODECS)}")
    return WriteOptions(
        given.bootstrap_servers(), topic or None, transaction_id or None, compression, transaction_epoch or 0
    )
