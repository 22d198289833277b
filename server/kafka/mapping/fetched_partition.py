"""A partition in the answer to a fetch. What Kafka's clients have written goes out as it came; all else is translated,
on a thread of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from quorumlog.server.kafka.codec.fetch_requests import FetchRequest
from quorumlog.server.kafka.codec.fetch_responses import (
    FetchResponseLeaderIdAndEpoch,
    FetchResponseNodeEndpoint,
    PartitionData,
)
from quorumlog.server.kafka.mapping.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.mapping.leader_hints import endpoints, leader_hint
from quorumlog.server.kafka.mapping.steps import KafkaCall, Steps, work_on
from quorumlog.server.kafka.mapping.topic_names import by_id
from quorumlog.v1 import data_plane_pb2
from quorumlog.v1.entry import CorruptEntryError
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.v1.kafka_entry import fetched_kafka_batch, is_kafka
from quorumlog.v1.kafka_translation import kafka_batches_of

#: From this version on topics are named by their ids.
BY_ID = 13
#: From this one on an answer says where the leaders are that it names.
_NAMES_NODES = 16
_NOT_KNOWN = -1
_BUSY_THROTTLE_MS = 100
#: What a client reads as "nothing now" instead of as an error.
NOTHING_NOW = frozenset((ErrorCode.SERVER_BUSY, ErrorCode.THROTTLING_QUOTA_EXCEEDED))


def answer_of(number: int, code: KafkaError | None = None) -> PartitionData:
    """An answer of a partition that says nothing, or why there is none."""
    return PartitionData(number, KafkaError.NONE if code is None else code, _NOT_KNOWN, records=b"")


def fill(call: KafkaCall[FetchRequest], answer: PartitionData, result: data_plane_pb2.FetchResult) -> None:
    """Fills in where a log begins and ends, or why it cannot be read."""
    if result.error.code in NOTHING_NOW:
        return
    if result.HasField("error"):
        code = kafka_code(result.error)
        if call.version >= BY_ID:
            code = by_id(code, call.cluster, result.topic_id)
        answer.error_code = code
        answer.current_leader = leader_hint(result.error, call.cluster, FetchResponseLeaderIdAndEpoch)
        if code is not KafkaError.OFFSET_OUT_OF_RANGE:
            return
    answer.high_watermark = result.high_watermark
    # Without transactions all that is committed is stable.
    answer.last_stable_offset = result.high_watermark
    answer.log_start_offset = result.log_start_offset


def put_records(answer: PartitionData, result: data_plane_pb2.FetchResult) -> Steps[None]:
    """Puts the records into an answer, if there are any."""
    if not result.entries:
        return
    try:
        if all(map(is_kafka, result.entries)):
            answer.records = b"".join(map(fetched_kafka_batch, result.entries))
        else:
            answer.records = yield from work_on(partial(_translated, result.entries))
    except CorruptEntryError:
        # It is as its producer wrote it; nobody can read it.
        answer.error_code = KafkaError.CORRUPT_MESSAGE


def throttle_ms(reply: data_plane_pb2.FetchResponse) -> int:
    """For how long the client should ask for nothing, because the node is busy."""
    busy = [result.error.throttle_time_ms for result in reply.results if result.error.code in NOTHING_NOW]
    return max(_BUSY_THROTTLE_MS, *busy) if busy else 0


def nodes_named(call: KafkaCall[FetchRequest], reply: data_plane_pb2.FetchResponse) -> list[FetchResponseNodeEndpoint]:
    """Where the leaders are that an answer names, in versions that say so."""
    if call.version < _NAMES_NODES:
        return []
    return endpoints((result.error for result in reply.results), call.cluster, FetchResponseNodeEndpoint)


def _translated(entries: Sequence[bytes]) -> bytes:
    return b"".join(map(kafka_batches_of, entries))
