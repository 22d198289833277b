"""One run of a piece of work that may be repeated: its producer name, and the parameters common to all its runs.

The name and the epoch are a named producer's (docs/use/guarantees.md). The first run that claims the epoch stores
a note with it. Every later run uses that note instead of what it sees itself: a topic may have gained partitions.

A run may have fewer tasks than one before it, of which a task may still be running. So a repeated run ends in this
order: it closes the work, looks up which names have been claimed, and takes away those that it has no task for. A task
claims its name, and then checks whether the work is closed. So it is either found and loses its name, or it sees that
nothing may be added.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from quorumlog.sdk.errors import ProducerNameNotFoundError, QuorumlogError, error_from_proto
from quorumlog.sdk.spark.errors import DeliveryError
from quorumlog.sdk.spark.nodes import Nodes, Patience
from quorumlog.sdk.spark.planning import TopicShape
from quorumlog.sdk.spark.rows_to_records import TargetPartition
from quorumlog.v1 import admin_pb2, admin_pb2_grpc
from quorumlog.v1 import data_plane_pb2 as pb

_Response = TypeVar("_Response", pb.InitProducerIdResponse, admin_pb2.ListProducersResponse)
_Answer = TypeVar("_Answer")

#: A cluster's limit of a note.
_MAX_NOTE_BYTES = 1024
_TIMEOUT_S = 10.0
#: Prefix of the names of runs that write in transactions.
TRANSACTIONAL_RUN = "in-transaction-"
#: Suffixes of the names of tasks after that of their work, and of names that store a claim that was taken away.
_TASK = re.compile(r"(?P<task>0|[1-9][0-9]*)(-(?P<taken>[0-9]+)-taken)?")
#: Limit of names in one deletion request.
_DELETED_AT_ONCE = 1_000
#: Ends that are too many to be stored exactly are rounded down, to multiples of 2 to the power of one of these: a later
#: run reads slightly more than necessary, instead of whole logs.
_ROUNDINGS = (0, 10, 14, 18, 22, 26, 30)


class Name(NamedTuple):
    """Identifies a task of a piece of work.

    Attributes:
        work: a streaming query, or a batch job.
        epoch: the micro-batch's number; of a batch job the user's number, or 0.
        task: the Spark partition's number.
    """

    work: str
    epoch: int
    task: int

    @property
    def producer(self) -> str:
        """The producer name."""
        return f"{self.work}-{self.task}"

    @property
    def turn(self) -> int:
        """A number that differs between tasks and micro-batches, so that all partitions have their turn."""
        return zlib.crc32(self.work.encode()) + self.epoch + self.task


class Note(NamedTuple):
    """The state that the first run saw.

    Attributes:
        timestamp_ms: of records without a timestamp of their own.
        partition_counts: by topic.
        ends: first offset in each partition that may be a run's record; empty if there were too many to store.
        ids: by topic, a checksum of its id; empty if there were too many to store.
        nonce: random number of the first run: each run has another.
    """

    timestamp_ms: int
    partition_counts: Mapping[str, int]
    ends: Mapping[TargetPartition, int]
    ids: Mapping[str, int]
    nonce: str

    def to_bytes(self, topics: list[str]) -> bytes:
        """Returns the stored form; the reader has ``topics``.

        Raises:
            DeliveryError: too many topics.
        """
        counts = [self.partition_counts[topic] for topic in topics]
        always = {"n": self.nonce, "t": self.timestamp_ms, "h": _fingerprint(topics), "p": counts}
        with_ids = {**always, "i": [self.ids[topic] for topic in topics]}
        for kept in (*({**with_ids, **self._ends_to(bits, topics)} for bits in _ROUNDINGS), with_ids, always):
            written = json.dumps(kept, separators=(",", ":")).encode()
            if len(written) <= _MAX_NOTE_BYTES:
                return written
        raise DeliveryError(f"one task writes to {len(topics)} topics, which is too many: repartition by topic")

    def _ends_to(self, bits: int, topics: list[str]) -> dict[str, Any]:
        ends = [
            [self.ends[TargetPartition(topic, number)] >> bits for number in range(self.partition_counts[topic])]
            for topic in topics
        ]
        return {"e": ends, "b": bits}

    @classmethod
    def from_bytes(cls, kept: bytes, topics: list[str]) -> Note:
        """Parses the result of ``to_bytes``.

        Raises:
            DeliveryError: the first run wrote to other topics.
        """
        parsed = json.loads(kept)
        if parsed["h"] != _fingerprint(topics):
            raise DeliveryError(
                "an earlier run of this batch wrote to other topics than this one would: option topic is another one,"
                " or the query does not give the same rows each time. This task has added nothing. Start it again with"
                " another checkpoint, or another transactionId"
            )
        ends = {
            TargetPartition(topic, number): end << parsed["b"]
            for topic, offsets in zip(topics, parsed.get("e", ()), strict=False)
            for number, end in enumerate(offsets)
        }
        ids = dict(zip(topics, parsed.get("i", ()), strict=False))
        return cls(parsed["t"], dict(zip(topics, parsed["p"], strict=True)), ends, ids, parsed["n"])

    def seen_with(self, shapes: Mapping[str, TopicShape]) -> Note:
        """Returns the part that applies to the present topics: nothing for a topic that was deleted and created
        again."""
        anew = {topic for topic, checksum in self.ids.items() if checksum != zlib.crc32(shapes[topic].topic_id)}
        return self._replace(
            partition_counts={topic: count for topic, count in self.partition_counts.items() if topic not in anew},
            ends={target: end for target, end in self.ends.items() if target.topic not in anew},
        )


def _fingerprint(topics: list[str]) -> int:
    return zlib.crc32("\n".join(topics).encode())


def _parsed(kept: bytes) -> dict[str, Any]:
    try:
        parsed: dict[str, Any] = json.loads(kept)
    except ValueError:
        return {}  # Not one of our notes, or from a node that does not return notes.
    return parsed


def says_all(kept: bytes, topic_ids: Iterable[bytes]) -> bool:
    """True if all topics in a note are among the given ones, so that none of them was deleted and created again.

    Arguments:
        kept: the result of ``Note.to_bytes``.
        topic_ids: of present topics.
    """
    return {zlib.crc32(topic_id) for topic_id in topic_ids}.issuperset(_parsed(kept).get("i", ()))


def first_ends(
    kept: bytes, shapes: Mapping[str, TopicShape], topic_ids: Collection[bytes]
) -> dict[TargetPartition, int]:
    """Returns the first offset in each partition that may be a record of runs with a note.

    Arguments:
        kept: the result of ``Note.to_bytes``, of a task that may have written to other topics.
        shapes: the present topics to search.
        topic_ids: of all topics that the note may name.

    Returns:
        nothing for topics that it certainly did not write to, 0 if the note has no offset. If a topic that it names was
        deleted, any other topic may have replaced it, with records of a later run.
    """
    parsed, is_sure = _parsed(kept), says_all(kept, topic_ids)
    found: dict[TargetPartition, int] = {}
    for topic, shape in shapes.items():
        checksum, ends = zlib.crc32(shape.topic_id), []
        if "i" in parsed:
            if checksum not in parsed["i"] and is_sure:
                continue
            if checksum in parsed["i"] and "e" in parsed:
                ends = [end << parsed["b"] for end in parsed["e"][parsed["i"].index(checksum)]]
        for number in range(shape.partition_count):
            found[TargetPartition(topic, number)] = ends[number] if number < len(ends) else 0
    return found


class WorkRun(NamedTuple):
    """A run of a whole piece of work, with all its tasks.

    Attributes:
        is_first: True if no other run has started it before.
        timestamp_ms: start of the first run: all its tasks, and those of later runs, use it for records without a
            timestamp.
        run: name of the first run.
    """

    is_first: bool
    timestamp_ms: int
    run: str


class WorkEnd(NamedTuple):
    """State of the end of a piece of work.

    Attributes:
        is_closed: all tasks of a repeated run were done: each row is in the log, or set aside because an equal one is.
            No task has anything to add.
        is_complete: rows set aside are in the log, too.
    """

    is_closed: bool
    is_complete: bool


class Claim(NamedTuple):
    """A claim of one task's name for some epoch, as the cluster has it.

    Attributes:
        producer_id: id of the name, or its former id if the name was taken away.
        note: the stored note of all runs of the task.
        is_taken: True if the name was taken away: no task has this claim.
    """

    task: int
    producer_id: int
    note: bytes
    is_taken: bool


class WriteRun(NamedTuple):
    """A run that may write.

    Attributes:
        producer_id: id of the name.
        note: of all runs.
        is_repeated: True if an earlier run may have written records.
    """

    producer_id: int
    note: Note
    is_repeated: bool


def begin_work(nodes: Nodes, name: Name, run: str, now_ms: int) -> WorkRun:
    """Claims the epoch for all tasks of a piece of work.

    Arguments:
        name: of any task of it.
        run: random, the same for all tasks of this run: each run has another.
        now_ms: milliseconds since the epoch.

    Raises:
        InvalidProducerEpochError: a later piece of the same work has started: another instance of the query runs.
        QuorumlogError: no node answers.
    """
    own = json.dumps({"n": run, "t": now_ms}, separators=(",", ":")).encode()
    response = _ask(nodes, pb.InitProducerIdRequest(name=f"{name.work}-begun", epoch=name.epoch, note=own))
    kept = json.loads(response.note or own)
    return WorkRun(kept["n"] == run, kept["t"], kept["n"])


def begin(nodes: Nodes, name: Name, topics: list[str], note: Note) -> WriteRun:
    """Claims a name's epoch.

    Arguments:
        topics: that it writes to, in order.
        note: of this run, if it is the first.

    Raises:
        DeliveryError: an earlier run wrote to other topics.
        InvalidProducerEpochError: a later piece of the same work has started: another instance of the query runs.
        QuorumlogError: no node answers.
    """
    own = note.to_bytes(topics)
    response = _ask(nodes, pb.InitProducerIdRequest(name=name.producer, epoch=name.epoch, note=own))
    return WriteRun(
        response.producer_id, Note.from_bytes(response.note or own, topics), is_repeated=response.note != own
    )


def pin(nodes: Nodes, name: str, value: str) -> str:
    """Stores a value under a name permanently.

    Returns:
        The value that was stored first.

    Raises:
        QuorumlogError: no node answers.
    """
    return _ask(nodes, pb.InitProducerIdRequest(name=name, epoch=0, note=value.encode())).note.decode() or value


def end_of(nodes: Nodes, work: str, epoch: int) -> WorkEnd:
    """Returns the state of the end of a piece of work, never older than the call.

    Raises:
        QuorumlogError: no node answers.
    """
    closed, complete = _closed(work), _complete(work)
    page = _listed(nodes, admin_pb2.ListProducersRequest(names=[closed, complete]))
    newest = {each.name: each.producer_epoch for each in page.producers}
    return WorkEnd(newest.get(closed, -1) >= epoch, newest.get(complete, -1) >= epoch)


def close(nodes: Nodes, work: str, epoch: int) -> None:
    """Notes that all tasks of a run are done, so that no task of another run has anything to add.

    Raises:
        InvalidProducerEpochError: a later piece of the same work is over: another instance of the query runs.
        QuorumlogError: no node answers.
    """
    _ask(nodes, pb.InitProducerIdRequest(name=_closed(work), epoch=epoch))


def take_names(nodes: Nodes, work: str, epoch: int, claims: Sequence[Claim]) -> None:
    """Takes the names of tasks away: their holders cannot write once the leader has received the change.

    ``claims_of`` finds their records until ``forget``, also in a run that follows after this one was interrupted.

    Raises:
        ProducerNameInUseError: a later piece of the same work has started: another instance of the query runs.
        QuorumlogError: no node answers.
    """
    for claim in claims:
        _ask(nodes, pb.InitProducerIdRequest(name=_taken(work, claim), epoch=epoch, note=claim.note))
    held = [claim for claim in claims if not claim.is_taken]
    for first in range(0, len(held), _DELETED_AT_ONCE):
        part = held[first : first + _DELETED_AT_ONCE]
        names = [f"{work}-{claim.task}" for claim in part]
        _delete(nodes, names, [admin_pb2.ProducerClaim(producer_id=c.producer_id, producer_epoch=epoch) for c in part])


def forget(nodes: Nodes, work: str, epoch: int) -> None:
    """Deletes the records of names that were taken away, when a piece of work is complete.

    Raises:
        QuorumlogError: no node answers.
    """
    taken = [_taken(work, claim) for claim in claims_of(nodes, work, epoch) if claim.is_taken]
    for first in range(0, len(taken), _DELETED_AT_ONCE):
        _delete(nodes, taken[first : first + _DELETED_AT_ONCE], [])


def complete(nodes: Nodes, work: str, epoch: int, tasks: int, records: int) -> None:
    """Notes that a run has completed a piece of work.

    Arguments:
        tasks: number of its tasks.
        records: number of records that it has written, or found written.

    Raises:
        DeliveryError: another run has completed it with other numbers.
        InvalidProducerEpochError: a later piece of the same work is over: another instance of the query runs.
        QuorumlogError: no node answers.
    """
    own = json.dumps({"tasks": tasks, "records": records}, separators=(",", ":")).encode()
    kept = _ask(nodes, pb.InitProducerIdRequest(name=_complete(work), epoch=epoch, note=own)).note
    if kept != own:
        raise DeliveryError(
            f"this run of the batch has {_told(own)}, one that was complete before had {_told(kept)}, and nothing is"
            " added to those. Two instances of the query run on copies of one checkpoint, or the rows are not the same"
            " each time, or a transactionId is used for more than one job"
        )


def claims_of(nodes: Nodes, work: str, epoch: int) -> list[Claim]:
    """Returns the tasks, of any run, that have started a piece of work.

    Raises:
        QuorumlogError: no node answers.
    """
    prefix, found, after = f"{work}-", list[Claim](), ""
    while True:
        request = admin_pb2.ListProducersRequest(prefix=prefix, after=after, notes=True)
        page = _listed(nodes, request)
        for each in page.producers:
            # Not the names of other works with this prefix, nor those of the whole work.
            task = _TASK.fullmatch(each.name.removeprefix(prefix))
            if each.producer_epoch == epoch and task is not None:
                taken = task["taken"]
                found.append(Claim(int(task["task"]), int(taken or each.producer_id), each.note, bool(taken)))
        if not page.more:
            return found
        after = page.producers[-1].name


def _listed(nodes: Nodes, request: admin_pb2.ListProducersRequest) -> admin_pb2.ListProducersResponse:
    request.timeout_ms = int(_TIMEOUT_S * 1000)

    def ask(address: str) -> admin_pb2.ListProducersResponse:
        stub = admin_pb2_grpc.AdminStub(nodes.channel(address))
        response: admin_pb2.ListProducersResponse = stub.ListProducers(request, timeout=_TIMEOUT_S)
        return response

    return _answered(nodes, ask)


def _delete(nodes: Nodes, names: Sequence[str], claims: Sequence[admin_pb2.ProducerClaim]) -> None:
    """Deletes names until none exists.

    Arguments:
        claims: those to delete; empty: any claim of the names.
    """
    request = admin_pb2.DeleteProducersRequest(names=names, claims=claims, timeout_ms=int(_TIMEOUT_S * 1000))

    def ask(address: str) -> None:
        stub = admin_pb2_grpc.AdminStub(nodes.channel(address))
        for result in stub.DeleteProducers(request, timeout=_TIMEOUT_S).results:
            refusal = error_from_proto(result.error) if result.HasField("error") else None
            if refusal is not None and not isinstance(refusal, ProducerNameNotFoundError):
                raise refusal

    _patiently(nodes, ask)


def _closed(work: str) -> str:
    """Returns the name that is claimed when a piece of work is closed. No task has it."""
    return f"{work}-closed"


def _complete(work: str) -> str:
    """Returns the name that is claimed when all tasks of a piece of work are done. No task has it."""
    return f"{work}-all"


def _taken(work: str, claim: Claim) -> str:
    """Returns the name that stores a claim that was taken away."""
    return f"{work}-{claim.task}-{claim.producer_id}-taken"


def _told(note: bytes) -> str:
    end = json.loads(note)
    return f"{end['records']} records in {end['tasks']} tasks"


def _ask(nodes: Nodes, request: pb.InitProducerIdRequest) -> pb.InitProducerIdResponse:
    request.timeout_ms = int(_TIMEOUT_S * 1000)

    def ask(address: str) -> pb.InitProducerIdResponse:
        response: pb.InitProducerIdResponse = nodes.stub(address).InitProducerId(request, timeout=_TIMEOUT_S)
        return response

    return _answered(nodes, ask)


def _answered(nodes: Nodes, ask: Callable[[str], _Response]) -> _Response:
    """Returns the nodes' final answer, after retries of temporary failures."""

    def ask_for_more(address: str) -> _Response:
        response = ask(address)
        if response.HasField("error"):
            raise error_from_proto(response.error)
        return response

    return _patiently(nodes, ask_for_more)


def _patiently(nodes: Nodes, ask: Callable[[str], _Answer]) -> _Answer:
    patience = Patience()
    while True:
        try:
            return nodes.first_answer(ask)
        except QuorumlogError as error:
            patience.pause(error)
