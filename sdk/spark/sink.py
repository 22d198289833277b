"""The writing half of the data source: entry points of Spark's API in a task, and exactly-once writes.

A task of a streaming query has a name that survives it: the query, its number, and the micro-batch as the epoch. A task
that is repeated, because it failed or because the query was restarted, claims the same epoch, reads back the records of
earlier runs, and adds the rest. So rows are in the log once, in whatever order a shuffle returns them. The design is in
docs/use/spark.md.
"""

from __future__ import annotations

import secrets
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice, zip_longest
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from quorumlog.sdk.errors import DuplicateSequenceMismatchError, NoBrokersAvailableError
from quorumlog.sdk.producer.producer import Producer
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.sdk.spark import rows_to_records
from quorumlog.sdk.spark import write_attempt as runs
from quorumlog.sdk.spark.cluster_catalog import ClusterCatalog
from quorumlog.sdk.spark.duplicate_rows import Placed, set_aside, without_lost
from quorumlog.sdk.spark.errors import DeliveryError, plain_errors
from quorumlog.sdk.spark.nodes import Patience, nodes_at
from quorumlog.sdk.spark.planning import TopicShape
from quorumlog.sdk.spark.prior_attempts import Stored, StoredBatch, written_before, written_by
from quorumlog.sdk.spark.rows_to_records import Spread, TargetPartition
from quorumlog.sdk.spark.sending import BatchSender, Piece
from quorumlog.sdk.spark.servers import security_of
from quorumlog.sdk.spark.write_options import WriteOptions

#: Limit of rows of one task, which are in memory until they are known to be written. For more rows, use more tasks.
MAX_TASK_BYTES = 1 << 30
#: Limit of a task's rows that equal others' and wait in the driver's memory for the end of a repeated run.
MAX_HELD_BYTES = 64 << 20
#: Rows are sent in portions of this size: enough for whole batches of several partitions.
_PORTION_BYTES = 8 << 20
#: Buffer of a producer.
BUFFER_BYTES = 64 << 20
#: Size of a batch of a producer.
BATCH_BYTES = 1 << 20
#: A node's limit of a row: the topic's limit is lower or equal.
LARGEST_ROW_BYTES = 8 << 20
#: A task of the same name that was given up may still be writing: its new records are read back again. Limit
#: of consecutive attempts without new records, because its last records are visible only once they are committed.
_ATTEMPTS = 5
#: Records that a leader has accepted are committed sooner, unless replicas stall.
_LOOK_AGAIN_S = 0.5


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """The result of one task: records that it has written, or found in the log.

    Attributes:
        name: of the work and task; None for rows that are written without one.
        topics: that it writes to.
        held: rows that may be those of another run's tasks; None without any.
        is_first: True if no other run of the work had started before.
    """

    records: int
    name: runs.Name | None = None
    topics: tuple[str, ...] = ()
    held: Held | None = None
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of a task that other tasks of an earlier run may have written: the end of the run decides.

    Attributes:
        run: the run that may write them.
        stored: number of records of the epoch in each partition, without them.
        rows: the rows that are left out so far.
    """

    run: runs.WriteRun
    stored: Mapping[tuple[str, int], int]
    rows: list[Placed]


class LogStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches, each exactly once."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        # Spark creates a writer for each run of a micro-batch, and passes copies of it to the tasks.
        self._run = _new_run()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Writes the rows of one task of a micro-batch."""
        task = TaskContext.get()
        assert task is not None, "Spark writes in tasks"
        query, batch = task.getLocalProperty("sql.streaming.queryId"), task.getLocalProperty("streaming.sql.batchId")
        assert query is not None and batch is not None, "Spark names the query and the micro-batch of a task"
        with plain_errors():
            name = runs.Name(f"spark-{query}", int(batch), task.partitionId())
            return write_once(self._options, name, iterator, self._run)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Notes that all tasks of a micro-batch are done."""
        with plain_errors():
            end(self._options, messages)


class LogWriter(DataSourceArrowWriter):
    """Writes the rows of a batch query: at least once, or exactly once with a ``transactionId``."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._run = _new_run()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Writes the rows of one task."""
        task = TaskContext.get()
        assert task is not None, "Spark writes in tasks"
        number, transaction_id = task.partitionId(), self._options.transaction_id
        with plain_errors():
            if transaction_id is None:
                return write_through(self._options, number, iterator)
            name = runs.Name(transaction_id, self._options.transaction_epoch, number)
            return write_once(self._options, name, iterator, self._run)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Notes that all tasks of a job with a ``transactionId`` are done."""
        with plain_errors():
            end(self._options, messages)


def write_through(options: WriteOptions, task: int, batches: Iterable[pa.RecordBatch]) -> Written:
    """Writes rows as they arrive. A repeated task writes them again.

    Raises:
        DeliveryError: rows cannot be written; the message names the topic and the reason.
    """
    records = 0
    shapes: dict[str, TopicShape] = {}
    with _producer(options) as producer:
        sender = BatchSender(producer)
        for rows in portions(options, batches):
            topics = topics_in(options, rows)
            new = [topic for topic in topics if topic not in shapes]
            if new:
                shapes |= shapes_of(options, new)
            here = {topic: shapes[topic] for topic in topics}
            sender.send(pieces_of(rows, Spread(here, time.time_ns() // 1_000_000, task, records)))
            records += rows.num_rows
        sender.finish()
    return Written(records)


def _new_run() -> str:
    return secrets.token_hex(8)


def write_once(
    options: WriteOptions, name: runs.Name, batches: Iterable[pa.RecordBatch], run_of_work: str | None = None
) -> Written:
    """Writes rows that no run under this name has written yet.

    Arguments:
        run_of_work: the same for all tasks of one run, different for each run; None: a run of its own.

    Raises:
        DeliveryError: rows cannot be written, or differ from those of an earlier run; the message names the topic and
            the reason.
    """
    coming = _limited(portions(options, batches))
    # The topics are claimed before anything is written: a topic column must be known completely.
    come = list(islice(coming, None if options.topic is None else 1))
    topics = topics_in(options, pa.concat_tables(come)) if come else []
    shapes = shapes_in_time(options, topics)
    nodes = nodes_at(options.bootstrap_servers)
    work = runs.begin_work(nodes, name, run_of_work or _new_run(), time.time_ns() // 1_000_000)
    if work.run.startswith(runs.TRANSACTIONAL_RUN):
        raise DeliveryError(
            f"number {name.epoch} of {name.work} was started in a transaction, and may be committed: run it with option"
            " transactional=true until it is done, then continue with transactional=false"
        )
    run = runs.begin(nodes, name, topics, first_look(options, shapes, work.timestamp_ms))
    note = run.note.seen_with(shapes)
    how = Spread(shapes, note.timestamp_ms, name.turn, first_counts=note.partition_counts)
    is_new = bool(come) and work.is_first and not run.is_repeated and not any(runs.end_of(nodes, name.work, name.epoch))
    held = None
    if not (is_new and _write_first(options, name, run, how, come, coming)):
        come.extend(coming)
        held = _write_rest(options, name, run._replace(note=note), how, come, is_first=work.is_first)
    return Written(sum(rows.num_rows for rows in come), name, tuple(topics), held, work.is_first)


def end(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Notes that every task of a piece of work has written its rows, so that no later run of it adds any.

    Arguments:
        messages: results of the tasks.

    Raises:
        DeliveryError: other runs of it have written more, or less.
    """
    nodes = nodes_at(options.bootstrap_servers)
    by_work: dict[tuple[str, int], list[Written]] = {}
    for message in messages:
        if isinstance(message, Written) and message.name is not None:
            by_work.setdefault((message.name.work, message.name.epoch), []).append(message)
    for (work, epoch), written in by_work.items():
        if not all(message.is_first for message in written):
            # Before the look-up of claims: a task that claims a name after it sees that the work is closed.
            runs.close(nodes, work, epoch)
        claims = runs.claims_of(nodes, work, epoch)
        # Claims of a run that had more tasks.
        is_open = any(claim.task >= len(written) for claim in claims) or any(message.held for message in written)
        if is_open and not runs.end_of(nodes, work, epoch).is_complete:
            _settle(options, runs.Name(work, epoch, 0), written, claims)
        runs.complete(nodes, work, epoch, len(written), sum(message.records for message in written))
        if is_open or any(claim.is_taken for claim in claims):
            runs.forget(nodes, work, epoch)


def _settle(options: WriteOptions, name: runs.Name, written: Sequence[Written], claims: Sequence[runs.Claim]) -> None:
    """Writes the rows that the tasks have set aside, except those written by tasks that this run does not have.

    Arguments:
        name: of any task of the work.
        claims: of all its tasks, and of those that this run does not have.
    """
    lost = [claim for claim in claims if claim.task >= len(written)]
    shapes = shapes_in_time(options, sorted({topic for message in written for topic in message.topics}))
    held = [(message, rows) for message in written if message.held for rows in message.held.rows]
    # Their records are read back only when they add no more.
    _take_names(options, name, shapes, lost)
    stored = _whole(written_by(options.bootstrap_servers, lost, name.epoch, shapes))
    missing = without_lost([rows for _, rows in held], stored, len(written))
    #: Number of records under names that can take rows which were left out.
    with_room: dict[int, int] = {}
    for message in written:
        mine = [(rows, left) for (whose, rows), left in zip(held, missing, strict=True) if whose is message]
        rest = [left for _, left in mine if left[1].num_rows]
        if message.held and any(left[1].num_rows < rows[1].num_rows for rows, left in mine):
            there = sum(message.held.stored.values()) + sum(left[1].num_rows for left in rest)
            with_room[message.held.run.producer_id] = there
        if not rest:
            continue
        assert message.held is not None and message.name is not None, "rows are set aside under a name"
        how = Spread(shapes, message.held.run.note.timestamp_ms, message.name.turn)
        if not _add(options, message.name, message.held.run, how, rest, message.held.stored):
            raise DeliveryError(
                f"another run has written under {message.name.producer} since this one's task was done: two instances"
                " of the query run on one checkpoint, or a task that was given up still runs. This run has added"
                " nothing more there. Start it again when only one is left"
            )
    # A given-up task of such a name could use the free sequence for rows that others have written.
    if _take_names(options, name, shapes, [each for each in claims if each.producer_id in with_room]) > sum(
        with_room.values()
    ):
        raise DeliveryError(
            "a task that was given up has written rows since this run's tasks were done, and they may be in the log"
            " twice now. Start it again with another checkpoint, or another transactionId"
        )


def _take_names(
    options: WriteOptions, name: runs.Name, shapes: Mapping[str, TopicShape], claims: Sequence[runs.Claim]
) -> int:
    """Takes names away; returns the number of records under them once they are final."""
    if not claims:
        return 0
    nodes = nodes_at(options.bootstrap_servers)
    runs.take_names(nodes, name.work, name.epoch, claims)
    nodes.wait_until_heard(shapes)
    known = -1
    while True:
        # Records that a leader accepted last are visible only once they are committed.
        stored = written_by(options.bootstrap_servers, claims, name.epoch, shapes)
        found = sum(each.batch.num_rows for each in stored)
        if found == known:
            return found
        known = found
        time.sleep(_LOOK_AGAIN_S)


def _whole(stored: Iterable[StoredBatch]) -> Iterator[tuple[TargetPartition, pa.RecordBatch]]:
    for each in stored:
        if not each.follows:
            raise DeliveryError(
                f"an earlier run of this batch had more tasks, and what they wrote to {each.target} cannot be read"
                " back as a whole: retention or compaction has removed some of it, which may be in the log again now."
                " Start it again with another checkpoint, or another transactionId"
            )
        yield each.target, each.batch


def _write_first(
    options: WriteOptions,
    name: runs.Name,
    run: runs.WriteRun,
    how: Spread,
    come: list[pa.Table],
    coming: Iterator[pa.Table],
) -> bool:
    """Writes the rows of a first run while Spark produces the next ones.

    Arguments:
        come: the first rows; the others are appended, in case all of them must be compared with the log.

    Returns:
        False if the log has other records under the name.
    """
    try:
        with _producer(options, name, run) as producer:
            sender = BatchSender(producer)
            for rows in chain(tuple(come), _kept(coming, come)):
                sender.send(pieces_of(rows, how))
            sender.finish()
            producer.end_epoch()
    except DuplicateSequenceMismatchError:
        return False
    return True


def _kept(coming: Iterator[pa.Table], come: list[pa.Table]) -> Iterator[pa.Table]:
    for rows in coming:
        come.append(rows)
        yield rows


def _write_rest(
    options: WriteOptions, name: runs.Name, run: runs.WriteRun, how: Spread, come: list[pa.Table], *, is_first: bool
) -> Held | None:
    """Writes the rows that earlier runs have not written.

    Arguments:
        is_first: True if no other run of the work has started before: then no task of another run can have them.

    Returns:
        rows that equal rows written by other tasks.
    """
    rows = pa.concat_tables(come) if come else rows_to_records.no_rows()
    backoff, in_vain, known = Backoff(), 0, -1
    while True:
        claims = runs.claims_of(nodes_at(options.bootstrap_servers), name.work, name.epoch)
        taken = [claim for claim in claims if claim.task == name.task and claim.producer_id != run.producer_id]
        stored = written_before(options.bootstrap_servers, name, run, taken, how.shapes)
        # If some records may have been removed, all rows may have to be written.
        here = stored.batches if stored.is_whole else {}
        rest = rows_to_records.rest_of(rows, here, how)
        if stored.is_whole and not rest:
            return None
        work = runs.end_of(nodes_at(options.bootstrap_servers), name.work, name.epoch)
        if work.is_complete:
            return None  # Nothing is ever added to complete work. `end` verifies the number of rows.
        shared: list[Placed] = []
        if not is_first or work.is_closed:
            rest, shared = set_aside(rest, _of_other_tasks(options, name, how))
            _check_held(name, shared)
        if stored.is_whole and rest and work.is_closed:
            raise _closed(name, sum(records.num_rows for _, records in rest))
        if stored.is_whole and (not rest or _add(options, name, run, how, rest, stored.records)):
            return _held(run, stored, rest, shared)
        # Some records may have been removed from the log, which still has the state of each batch: one more run that
        # cuts the same batches is allowed. Different ones are refused.
        if not stored.is_whole or in_vain == _ATTEMPTS:
            if not shared and not taken and _write_first(options, name, run, how, come, iter(())):
                return None
            raise _gone(name)
        found = sum(stored.records.values())
        in_vain, known = (in_vain + 1, known) if found == known else (1, found)
        time.sleep(backoff.delay_s(in_vain))


def _of_other_tasks(
    options: WriteOptions, name: runs.Name, how: Spread
) -> Iterator[tuple[TargetPartition, pa.RecordBatch]]:
    """Yields the records that other tasks of the same work have written, in this run or another."""
    claims = runs.claims_of(nodes_at(options.bootstrap_servers), name.work, name.epoch)
    others = [claim for claim in claims if claim.task != name.task]
    for stored in written_by(options.bootstrap_servers, others, name.epoch, how.shapes):
        yield stored.target, stored.batch


def _check_held(name: runs.Name, shared: Sequence[Placed]) -> None:
    """Verifies that rows set aside fit into the driver's memory, which receives all of them."""
    size_bytes = sum(records.nbytes for _, records in shared)
    if size_bytes > MAX_HELD_BYTES:
        raise DeliveryError(
            f"{size_bytes >> 20} MiB of the rows that {name.producer} has to write equal rows that other tasks have"
            f" written in an earlier run, which is more than {MAX_HELD_BYTES >> 20}: whether they are the same can only"
            " be determined for fewer. This task has added nothing. Start it again with another checkpoint, or another"
            " transactionId, and limit what a micro-batch reads (maxOffsetsPerTrigger)"
        )


def _held(run: runs.WriteRun, stored: Stored, added: Sequence[Placed], shared: list[Placed]) -> Held | None:
    if not shared:
        return None
    counts = dict(stored.records)
    for target, records in added:
        counts[*target,] = counts.get((*target,), 0) + records.num_rows
    return Held(run, counts, shared)


def _add(
    options: WriteOptions,
    name: runs.Name,
    run: runs.WriteRun,
    how: Spread,
    rest: Sequence[tuple[TargetPartition, pa.Table]],
    stored: Mapping[tuple[str, int], int],
) -> bool:
    """Adds records after the stored ones; returns False if there are more by now."""
    try:
        with _producer(options, name, run, stored) as producer:
            sender = BatchSender(producer)
            sender.send(_in_turn([_cut(target, records, how) for target, records in rest]))
            sender.finish()
            producer.end_epoch()
    except DuplicateSequenceMismatchError:
        return False
    return True


def portions(options: WriteOptions, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yields Spark's batches, combined: stored batches must not depend on the sizes of Spark's."""
    gathered: list[pa.Table] = []
    size_bytes = 0
    for batch in batches:
        if batch.num_rows:
            gathered.append(rows_to_records.rows_of(batch, options.topic))
            size_bytes += batch.nbytes
        if size_bytes >= _PORTION_BYTES:
            yield pa.concat_tables(gathered)
            gathered, size_bytes = [], 0
    if gathered:
        yield pa.concat_tables(gathered)


def _limited(portions: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yields the same portions, as long as their total size is within the limit."""
    size_bytes = 0
    for rows in portions:
        size_bytes += rows.nbytes
        if size_bytes > MAX_TASK_BYTES:
            raise DeliveryError(
                f"one task has more than {MAX_TASK_BYTES >> 20} MiB to write: repartition into more tasks, or limit"
                " what a micro-batch reads (maxOffsetsPerTrigger)"
            )
        yield rows


def topics_in(options: WriteOptions, rows: pa.Table) -> list[str]:
    """Returns the topics of rows."""
    return rows_to_records.topics_of(rows) if options.topic is None else [options.topic]


def first_look(options: WriteOptions, shapes: Mapping[str, TopicShape], timestamp_ms: int) -> runs.Note:
    """Returns a first run's note for later runs.

    Arguments:
        timestamp_ms: of records without a timestamp of their own.
    """
    partitions = [
        TargetPartition(topic, number) for topic, shape in shapes.items() for number in range(shape.partition_count)
    ]
    bounds = _catalog(options).bounds(shapes, partitions)
    return runs.Note(
        timestamp_ms=timestamp_ms,
        partition_counts={topic: shape.partition_count for topic, shape in shapes.items()},
        ends={target: bounds[target].end for target in partitions},
        ids={topic: zlib.crc32(shape.topic_id) for topic, shape in shapes.items()},
        nonce=secrets.token_hex(4),
    )


def _catalog(options: WriteOptions) -> ClusterCatalog:
    return ClusterCatalog(options.bootstrap_servers, newest=False, isolation_level="read_uncommitted")


def shapes_of(options: WriteOptions, topics: list[str]) -> dict[str, TopicShape]:
    """Returns the present topics.

    Raises:
        DeliveryError: one does not exist.
    """
    shapes = _catalog(options).describe(topics)
    missing = [topic for topic in topics if topic not in shapes]
    if missing:
        raise DeliveryError(
            f"topic {missing[0]!r} does not exist: create it first, because a write does not create topics"
        )
    return {topic: shapes[topic] for topic in topics}


def shapes_in_time(options: WriteOptions, topics: list[str]) -> dict[str, TopicShape]:
    """Returns the present topics. A running query survives nodes that do not answer for some time."""
    patience = Patience()
    while True:
        try:
            return shapes_of(options, topics)
        except NoBrokersAvailableError as error:
            patience.pause(error)


def _producer(
    options: WriteOptions,
    name: runs.Name | None = None,
    run: runs.WriteRun | None = None,
    stored: Mapping[tuple[str, int], int] | None = None,
) -> Producer:
    return Producer(
        bootstrap_servers=options.bootstrap_servers,
        **asdict(security_of(options.bootstrap_servers)),
        client_id="quorumlog-spark",
        compression_type=options.compression,
        batch_size=BATCH_BYTES,
        max_request_size=LARGEST_ROW_BYTES,
        buffer_memory=BUFFER_BYTES,
        producer_name=None if name is None else name.producer,
        producer_epoch=None if name is None else name.epoch,
        epoch_records=stored,
        # The run has claimed the epoch: another claim would be a superfluous commit of the controllers.
        producer_id=None if run is None else run.producer_id,
    )


def pieces_of(rows: pa.Table, how: Spread) -> Iterator[Piece]:
    """Returns rows as batches, with partitions in turn: their leaders work in parallel."""
    return _in_turn([_cut(target, records, how) for target, records in rows_to_records.spread(rows, how)])


def _cut(target: TargetPartition, records: pa.Table, how: Spread) -> Iterator[Piece]:
    for batch in rows_to_records.cut(records, how.shapes[target.topic].max_message_bytes):
        yield target, batch


def _in_turn(by_target: Iterable[Iterator[Piece]]) -> Iterator[Piece]:
    for turn in zip_longest(*by_target):
        yield from (piece for piece in turn if piece is not None)


def _closed(name: runs.Name, count: int) -> DeliveryError:
    return DeliveryError(
        f"all tasks of another run of this batch are done, and {count} records of {name.producer} are not among what"
        " they have: the query does not give the same rows each time. This task has added nothing. Start it again with"
        " another checkpoint, or another transactionId"
    )


def _gone(name: runs.Name) -> DeliveryError:
    return DeliveryError(
        f"what earlier runs of {name.producer} wrote cannot be read back as a whole: retention or compaction has"
        " removed some of it, and this run has its rows in another order, so that the missing ones are unknown."
        " Start it again with another checkpoint, or another transactionId"
    )
