"""One run of a piece of work that may be repeated: under which name it writes, and what all its runs go by.

The name and the epoch are a named producer's (docs/guarantees.md): whoever claims the epoch first leaves a note with
it, and every later run goes by that note instead of what it sees itself. A topic may have gained partitions since.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from typing import NamedTuple

from quorumlog.sdk.errors import QuorumlogError, error_from_proto
from quorumlog.sdk.spark.errors import DeliveryError
from quorumlog.sdk.spark.nodes import Nodes, Patience
from quorumlog.sdk.spark.outgoing import Target
from quorumlog.v1 import data_plane_pb2 as pb

#: Bytes of a note that a cluster keeps.
_MAX_NOTE_BYTES = 1024
_TIMEOUT_S = 10.0


class Name(NamedTuple):
    """Whose work it is, and which piece.

    Attributes:
        producer: the named identity.
        epoch: the micro-batch's number; of a batch query what the user gives, or 0.
        task: the Spark partition's number.
    """

    producer: str
    epoch: int
    task: int


class Note(NamedTuple):
    """What the first run saw.

    Attributes:
        timestamp_ms: of records that have none of their own.
        partition_counts: by topic.
        ends: where each partition ended; empty where there were too many to keep.
        nonce: drawn by the first run: another run has another.
    """

    timestamp_ms: int
    partition_counts: Mapping[str, int]
    ends: Mapping[Target, int]
    nonce: str

    def to_bytes(self, topics: list[str]) -> bytes:
        """As it is kept; ``topics`` are known to whoever reads it.

        Raises:
            DeliveryError: too many topics.
        """
        counts = [self.partition_counts[topic] for topic in topics]
        ends = [
            [self.ends[Target(topic, number)] for number in range(count)]
            for topic, count in zip(topics, counts, strict=True)
        ]
        always = {"n": self.nonce, "t": self.timestamp_ms, "h": _fingerprint(topics), "p": counts}
        for kept in ({**always, "e": ends}, always):
            written = json.dumps(kept, separators=(",", ":")).encode()
            if len(written) <= _MAX_NOTE_BYTES:
                return written
        raise DeliveryError(f"one task writes to {len(topics)} topics, which is too many: repartition by topic")

    @classmethod
    def from_bytes(cls, kept: bytes, topics: list[str]) -> Note:
        """What ``to_bytes`` gave.

        Raises:
            DeliveryError: the first run wrote to other topics.
        """
        parsed = json.loads(kept)
        counts = parsed["p"]
        if parsed["h"] != _fingerprint(topics):
            raise DeliveryError(
                "an earlier run of this batch wrote to other topics than this one would: the query does not give the"
                " same rows each time. Nothing was added. Start it anew with another checkpoint"
            )
        ends = {
            Target(topic, number): end
            for topic, offsets in zip(topics, parsed.get("e", ()), strict=False)
            for number, end in enumerate(offsets)
        }
        return cls(parsed["t"], dict(zip(topics, counts, strict=True)), ends, parsed["n"])


def _fingerprint(topics: list[str]) -> int:
    return zlib.crc32("\n".join(topics).encode())


class Run(NamedTuple):
    """A run that may write.

    Attributes:
        producer_id: what the log knows the name by.
        note: what all runs go by.
        is_repeated: whether an earlier run may have written something.
    """

    producer_id: int
    note: Note
    is_repeated: bool


def begin(nodes: Nodes, name: Name, topics: list[str], look: Callable[[], Note]) -> Run:
    """Claims a name's epoch.

    Arguments:
        topics: that it writes to, in order.
        look: gives the note of a first run.

    Raises:
        DeliveryError: a later piece of the same work has begun: another instance of the query runs.
        QuorumlogError: nobody answers.
    """
    note = look().to_bytes(topics)
    request = pb.InitProducerIdRequest(
        name=name.producer, epoch=name.epoch, note=note, timeout_ms=int(_TIMEOUT_S * 1000)
    )
    patience = Patience()
    while True:
        try:
            response = nodes.first_answer(lambda address: _claim(nodes, address, request))
            if not response.HasField("error"):
                kept = response.note
                return Run(response.producer_id, Note.from_bytes(kept or note, topics), is_repeated=kept != note)
            patience.pause(error_from_proto(response.error))
        except QuorumlogError as error:
            patience.pause(error)


def _claim(nodes: Nodes, address: str, request: pb.InitProducerIdRequest) -> pb.InitProducerIdResponse:
    response: pb.InitProducerIdResponse = nodes.stub(address).InitProducerId(request, timeout=_TIMEOUT_S)
    return response
