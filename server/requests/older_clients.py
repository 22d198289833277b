"""What clients are told that would misread a batch of Kafka's: those from before entries could hold one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from quorumlog.server.wire_errors import error
from quorumlog.v1 import errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.kafka_entry import is_kafka


def before_kafka(entries: Sequence[bytes]) -> list[bytes]:
    """The entries before the first batch of Kafka's."""
    return list(takewhile(lambda entry: not is_kafka(entry), entries))


def refuse_kafka(partition: str) -> errors_pb2.Error:
    """Why there is nothing more to read for such a client."""
    return error(
        ErrorCode.UNSUPPORTED_VERSION,
        f"{partition} goes on with a batch that a Kafka client has written, and this client cannot read such: upgrade"
        " it to the version of the nodes",
    )
