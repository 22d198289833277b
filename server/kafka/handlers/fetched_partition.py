"""Partitions in the response to a fetch.

Batches written by Kafka's clients are served as they are stored if the request's version supports their codec; all
others are translated on a worker thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

from quorumlog.server.kafka.codec.fetch_requests import FetchRequest
from quorumlog.server.kafka.codec.fetch_responses import (
    AbortedTransaction,
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
from quorumlog.wire.kafka.entry import fetched_kafka_parts
from quorumlog.wire.kafka.translation import is_served_as_stored, served_batches

#: From this version on, topics are named by their ids.
BY_ID = 13
#: The first version whose clients read zstd (KIP-110).
_READS_ZSTD = 10
#: Uncompressed bytes in one response of batches that are compressed in the log.
_MOST_PLAIN_BYTES = 8 << 20
#: From this version on, a response has the addresses of the leaders that it names.
_NAMES_NODES = 16
_READ_COMMITTED = 1
_NOT_KNOWN = -1
_BUSY_THROTTLE_MS = 100
#: Errors that become an empty result for the client.
NOTHING_NOW = frozenset((ErrorCode.SERVER_BUSY, ErrorCode.THROTTLING_QUOTA_EXCEEDED))
#: Codes that brokers never return for a fetch -> codes that they do. Java's consumer stops for an unexpected code; on
#: these, all clients refresh metadata and retry.
_OTHERWISE = {
    KafkaError.LEADER_NOT_AVAILABLE: KafkaError.NOT_LEADER_OR_FOLLOWER,
    KafkaError.COORDINATOR_NOT_AVAILABLE: KafkaError.NOT_LEADER_OR_FOLLOWER,
}


def isolation_level(level: int) -> data_plane_pb2.IsolationLevel.ValueType:
    """Returns the isolation level that a request of Kafka's protocol has as a number."""
    if level == _READ_COMMITTED:
        return data_plane_pb2.ISOLATION_LEVEL_READ_COMMITTED
    return data_plane_pb2.ISOLATION_LEVEL_READ_UNCOMMITTED


def answer_of(number: int, code: KafkaError | None = None) -> PartitionData:
    """Returns a partition's response without records, with an error if one is given."""
    return PartitionData(number, KafkaError.NONE if code is None else _told(code), _NOT_KNOWN, records=b"")


def fill(call: KafkaCall[FetchRequest], answer: PartitionData, result: data_plane_pb2.FetchResult) -> None:
    """Fills in the log's bounds, or the error for which it cannot be read."""
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
    is_stable = not result.HasField("last_stable_offset")
    answer.last_stable_offset = result.high_watermark if is_stable else result.last_stable_offset
    if result.aborted:
        answer.aborted_transactions = [
            AbortedTransaction(each.producer_id, each.first_offset) for each in result.aborted
        ]
    answer.log_start_offset = result.log_start_offset
    if result.HasField("preferred_replica"):
        answer.preferred_read_replica = result.preferred_replica


def put_records(call: KafkaCall[FetchRequest], served: Sequence[tuple[PartitionData, Sequence[bytes]]]) -> Steps[bool]:
    """Puts records into responses.

    Arguments:
        served: responses, and the entries for each.

    Returns:
        False if some would have to be translated and too much work is pending: these partitions get no records now.
    """
    reads_zstd = call.version >= _READS_ZSTD
    sizes = [_bytes_to_translate(entries, reads_zstd) for _, entries in served]
    waiting_bytes, is_whole = sum(sizes), True
    room_bytes = min(max(0, call.message.max_bytes), _MOST_PLAIN_BYTES)
    for (answer, entries), size_bytes in zip(served, sizes, strict=True):
        try:
            if size_bytes:
                # The batches of the partitions after it are held in memory for as long.
                kept_bytes, waiting_bytes = waiting_bytes, waiting_bytes - size_bytes
                serve = partial(served_batches, entries, room_bytes, reads_zstd=reads_zstd)
                answer.records = yield from work_on(serve, kept_bytes)
            elif entries:
                answer.records = b"".join(chain.from_iterable(map(fetched_kafka_parts, entries)))
            room_bytes -= len(answer.records or b"")
        except TooMuchWorkError:
            is_whole = False
        except CorruptEntryError:
            # The batch is as its producer wrote it; no client can read it.
            answer.error_code = KafkaError.CORRUPT_MESSAGE
    return is_whole


def _bytes_to_translate(entries: Sequence[bytes], reads_zstd: bool) -> int:
    """Returns the size of a partition's entries; 0 if all of them are served as they are stored."""
    try:
        if all(is_served_as_stored(entry, reads_zstd=reads_zstd) for entry in entries):
            return 0
    except CorruptEntryError:
        pass  # Translating them fails, too, and sets the error.
    return sum(map(len, entries))


def throttle_ms(reply: data_plane_pb2.FetchResponse, *, is_busy: bool) -> int:
    """Returns for how long the client should not fetch because the node is busy, in ms.

    Arguments:
        is_busy: something of the response was not translated.
    """
    busy = [result.error.throttle_time_ms for result in reply.results if result.error.code in NOTHING_NOW]
    return max((_BUSY_THROTTLE_MS, *busy)) if busy or is_busy else 0


def nodes_named(call: KafkaCall[FetchRequest], reply: data_plane_pb2.FetchResponse) -> list[FetchResponseNodeEndpoint]:
    """Returns the addresses of the leaders named in a response, in versions that have them."""
    if call.version < _NAMES_NODES:
        return []
    return endpoints((result.error for result in reply.results), call.cluster, FetchResponseNodeEndpoint)


def _told(code: KafkaError) -> KafkaError:
    """Replaces a code that consumers do not expect."""
    return _OTHERWISE.get(code, code)
