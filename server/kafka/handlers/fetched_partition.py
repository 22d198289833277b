"""A partition in the answer to a fetch. What Kafka's clients have written goes out as it came, if the version of the
request has its codec; all else is translated, on a thread of its own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from quorumlog.server.kafka.codec.fetch_requests import FetchRequest
from quorumlog.server.kafka.codec.fetch_responses import (
    FetchResponseLeaderIdAndEpoch,
    FetchResponseNodeEndpoint,
    PartitionData,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps, TooMuchWorkError, work_on
from quorumlog.server.kafka.handlers.leader_hints import endpoints, leader_hint
from quorumlog.server.kafka.handlers.topic_names import by_id
from quorumlog.v1 import data_plane_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import CorruptEntryError
from quorumlog.wire.kafka.entry import fetched_kafka_batch
from quorumlog.wire.kafka.translation import is_served_as_stored, served_batches

#: From this version on topics are named by their ids.
BY_ID = 13
#: The first version whose clients read zstd (KIP-110).
_READS_ZSTD = 10
#: Bytes of one response that may be uncompressed although they are compressed in the log.
_MOST_PLAIN_BYTES = 8 << 20
#: From this one on an answer says where the leaders are that it names.
_NAMES_NODES = 16
_NOT_KNOWN = -1
_BUSY_THROTTLE_MS = 100
#: What a client reads as "nothing now" instead of as an error.
NOTHING_NOW = frozenset((ErrorCode.SERVER_BUSY, ErrorCode.THROTTLING_QUOTA_EXCEEDED))
#: What brokers never say to a fetch -> what they say instead. Java's consumer ends for a code that it does not expect
#: there; at these all clients look who leads, and ask again.
_OTHERWISE = {
    KafkaError.LEADER_NOT_AVAILABLE: KafkaError.NOT_LEADER_OR_FOLLOWER,
    KafkaError.COORDINATOR_NOT_AVAILABLE: KafkaError.NOT_LEADER_OR_FOLLOWER,
}


def answer_of(number: int, code: KafkaError | None = None) -> PartitionData:
    """An answer of a partition that says nothing, or why there is none."""
    return PartitionData(number, KafkaError.NONE if code is None else _told(code), _NOT_KNOWN, records=b"")


def fill(call: KafkaCall[FetchRequest], answer: PartitionData, result: data_plane_pb2.FetchResult) -> None:
    """Fills in where a log begins and ends, or why it cannot be read."""
    if result.error.code in NOTHING_NOW:
        return
    if result.HasField("error"):
        code = kafka_code(result.error)
        if call.version >= BY_ID:
            code = by_id(code, call.cluster, result.topic_id)
        answer.error_code = _told(code)
        answer.current_leader = leader_hint(result.error, call.cluster, FetchResponseLeaderIdAndEpoch)
        if code is not KafkaError.OFFSET_OUT_OF_RANGE:
            return
    answer.high_watermark = result.high_watermark
    # Without transactions all that is committed is stable.
    answer.last_stable_offset = result.high_watermark
    answer.log_start_offset = result.log_start_offset


def put_records(
    call: KafkaCall[FetchRequest], told: Sequence[tuple[PartitionData, data_plane_pb2.FetchResult]]
) -> Steps[bool]:
    """Puts records into answers.

    Returns:
        False where some would have to be translated, and too much waits for that: of these the client gets nothing now.
    """
    reads_zstd = call.version >= _READS_ZSTD
    sizes = [_bytes_to_translate(result.entries, reads_zstd) for _, result in told]
    waiting_bytes, is_whole = sum(sizes), True
    room_bytes = min(max(0, call.message.max_bytes), _MOST_PLAIN_BYTES)
    for (answer, result), size_bytes in zip(told, sizes, strict=True):
        try:
            if size_bytes:
                # What comes behind it is kept as long.
                kept_bytes, waiting_bytes = waiting_bytes, waiting_bytes - size_bytes
                serve = partial(served_batches, result.entries, room_bytes, reads_zstd=reads_zstd)
                answer.records = yield from work_on(serve, kept_bytes)
            elif result.entries:
                answer.records = b"".join(map(fetched_kafka_batch, result.entries))
            room_bytes -= len(answer.records or b"")
        except TooMuchWorkError:
            is_whole = False
        except CorruptEntryError:
            # It is as its producer wrote it; nobody can read it.
            answer.error_code = KafkaError.CORRUPT_MESSAGE
    return is_whole


def _bytes_to_translate(entries: Sequence[bytes], reads_zstd: bool) -> int:
    """Of a partition's entries; 0 where all of them are served as they are stored."""
    try:
        if all(is_served_as_stored(entry, reads_zstd=reads_zstd) for entry in entries):
            return 0
    except CorruptEntryError:
        pass  # Translating them fails as well, and the answer says so.
    return sum(map(len, entries))


def throttle_ms(reply: data_plane_pb2.FetchResponse, *, is_busy: bool) -> int:
    """For how long the client should ask for nothing, because the node is busy.

    Arguments:
        is_busy: something of the answer was not translated.
    """
    busy = [result.error.throttle_time_ms for result in reply.results if result.error.code in NOTHING_NOW]
    return max((_BUSY_THROTTLE_MS, *busy)) if busy or is_busy else 0


def nodes_named(call: KafkaCall[FetchRequest], reply: data_plane_pb2.FetchResponse) -> list[FetchResponseNodeEndpoint]:
    """Where the leaders are that an answer names, in versions that say so."""
    if call.version < _NAMES_NODES:
        return []
    return endpoints((result.error for result in reply.results), call.cluster, FetchResponseNodeEndpoint)


def _told(code: KafkaError) -> KafkaError:
    """An error in the words that consumers know."""
    return _OTHERWISE.get(code, code)
