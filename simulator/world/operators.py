"""Operators in virtual time: they delete records and names, look up times, move partitions and the metadata quorum,
and replace disks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.simulator.models.committed_partition import CommittedPartition, Violation
from quorumlog.simulator.world.clients import Directory, KnownPartition, PartitionName, Port, Unanswered
from quorumlog.simulator.world.cluster import EVERYTHING, SimCluster
from quorumlog.simulator.world.convergence import missing_repairs
from quorumlog.simulator.world.replica_sets import is_enough_without
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import admin_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import parse_header

WISH_TIMEOUT_MS = 700
#: Limits of moves, in bytes per second. A node's own, which the plan draws, is what makes them wait: logs are small.
_THROTTLES = (0, 0, 1 << 20, 3 << 20)


def newest_image(cluster: SimCluster) -> MetadataImage | None:
    """The metadata of the node that has applied most of them."""
    images = [each.image for each in cluster.processes.values() if each.image is not None]
    return max(images, key=lambda image: image.applied_index, default=None)


class Operator:
    """Asks something of some partition's leader now and then.

    Arguments:
        partitions: of which it asks.
        stopped: whether it is to ask no more.
    """

    def __init__(
        self,
        name: str,
        partitions: list[PartitionName],
        cluster: SimCluster,
        scheduler: Scheduler,
        stopped: Callable[[], bool],
        interval_us: tuple[int, int],
    ) -> None:
        self.name = name
        self.cluster = cluster
        self.scheduler = scheduler
        self.rng = scheduler.stream(name)
        self._partitions = partitions
        self._stopped = stopped
        self._interval_us = interval_us
        self._directory = Directory(name, cluster, scheduler, scheduler.stream(f"{name}/directory"))
        self._tick()

    def _tick(self) -> None:
        if self._stopped():
            return
        self.scheduler.after(self.rng.randint(*self._interval_us), self._tick)
        partition = self.rng.choice(self._partitions)
        known = self._directory.partitions.get(partition)
        if known is None or known.leader < 0 or self.rng.random() < 0.3:
            self._directory.refresh()
        if known is not None and known.leader >= 0:
            self.ask(partition, known, self.cluster.invariants.model(known.group).log)

    def ask(self, partition: PartitionName, known: KnownPartition, log: CommittedPartition) -> None:
        """Asks once."""
        raise NotImplementedError


class RecordDeleter(Operator):
    """Deletes records before some offset, more often than not one in the midst of what is kept."""

    def ask(self, partition: PartitionName, known: KnownPartition, log: CommittedPartition) -> None:
        """Asks once."""
        before = self.rng.randint(log.log_start, log.next_offset)
        if self.rng.random() < 0.1:
            before = EVERYTHING
        request = admin_pb2.DeleteRecordsRequest(timeout_ms=500)
        request.partitions.add(topic_id=known.topic_id, partition=partition.number, before_offset=before)

        def served(message: ProtoMessage) -> None:
            assert isinstance(message, admin_pb2.DeleteRecordsResponse)
            result = message.results[0]
            if result.error.code == ErrorCode.NONE and not before <= result.log_start_offset <= log.log_start:
                raise Violation(
                    f"node {known.leader} says that {partition} begins at {result.log_start_offset} after a deletion"
                    f" of what is before {before}; committed is {log.log_start}"
                )

        def answered(answer: ProtoMessage | Unanswered) -> None:
            """Whoever deletes for the sake of space does not ask again."""

        self.cluster.request(self.name, known.leader, request, answered, served)


class NameDeleter:
    """Deletes the names of producers that go on writing: each claims its name anew then, and what it had sent before is
    sent late.

    Arguments:
        names: that it deletes, one at a time.
        stopped: whether it is to ask no more.
    """

    def __init__(
        self,
        names: list[str],
        cluster: SimCluster,
        scheduler: Scheduler,
        stopped: Callable[[], bool],
        interval_us: tuple[int, int],
    ) -> None:
        self._names = names
        self._cluster = cluster
        self._scheduler = scheduler
        self._rng = scheduler.stream("NameDeleter")
        self._stopped = stopped
        self._interval_us = interval_us
        self._tick()

    def _tick(self) -> None:
        if self._stopped():
            return
        self._scheduler.after(self._rng.randint(*self._interval_us), self._tick)
        name, node = self._rng.choice(self._names), self._rng.choice(self._cluster.node_ids)
        request = admin_pb2.DeleteProducersRequest(names=[name], timeout_ms=500)
        self._cluster.request("NameDeleter", node, request, lambda answer: None)


class Wisher:
    """Wishes for another shape of the cluster at any moment, of any node, and does not wait for what comes of it.

    Arguments:
        name: of its random stream.
        stopped: tells when to end.
        interval_us: least and most time between two wishes.
    """

    def __init__(
        self,
        name: str,
        port: Port,
        scheduler: Scheduler,
        stopped: Callable[[], bool],
        interval_us: tuple[int, int],
    ) -> None:
        self._name = name
        self._scheduler = scheduler
        self._stopped = stopped
        self._interval_us = interval_us
        self.port = port
        self.rng = scheduler.stream(name)
        self.throttles = scheduler.stream(f"{name}/throttles")
        self._tick()

    def _tick(self) -> None:
        if self._stopped():
            self.end()
            return
        self._scheduler.after(self.rng.randint(*self._interval_us), self._tick)
        wish = self.wish()
        self.port.request(self._name, self.rng.choice(self.port.node_ids), wish, lambda answer: None)

    def wish(self) -> ProtoMessage:
        """What it wishes for now."""
        raise NotImplementedError

    def end(self) -> None:
        """It wishes for nothing more."""

    def insist(self, wish: ProtoMessage, is_taken_on: Callable[[ProtoMessage | Unanswered], bool]) -> None:
        """Asks one node after the other until a wish is taken on."""

        def answered(answer: ProtoMessage | Unanswered) -> None:
            if not is_taken_on(answer):
                self._scheduler.after(200_000, lambda: self.insist(wish, is_taken_on))

        self.port.request(self._name, self.rng.choice(self.port.node_ids), wish, answered)


class PartitionMover(Wisher):
    """Has partitions moved about. It cancels moves and changes its mind.

    Arguments:
        fewest: replicas that every partition must keep.
        even: to an even number of nodes too, where there is one more for the witness; else to odd ones only.
        spared: nodes on which nothing of any partition is at a time: one more may have to be drained.
    """

    def __init__(
        self,
        port: Port,
        scheduler: Scheduler,
        partitions: Sequence[PartitionName],
        fewest: int,
        stopped: Callable[[], bool],
        interval_us: tuple[int, int],
        *,
        even: bool,
        spared: int = 0,
    ) -> None:
        self._partitions = partitions
        most = len(port.node_ids) - spared
        sizes = [size for size in range(1, most + 1) if size % 2 or (even and size < most)]
        self._sizes = [size for size in sizes if fewest <= size] or [most]
        super().__init__("mover", port, scheduler, stopped, interval_us)

    def wish(self) -> ProtoMessage:
        """Some partition is to be elsewhere, or to stay."""
        rng = self.rng
        name = rng.choice(self._partitions)
        replicas = [] if rng.random() < 0.2 else rng.sample(self.port.node_ids, rng.choice(self._sizes))
        request = admin_pb2.ReassignPartitionsRequest(
            timeout_ms=WISH_TIMEOUT_MS, bytes_per_second=self.throttles.choice(_THROTTLES)
        )
        request.reassignments.add(topic=name.topic, partition=name.number, replicas=replicas)
        return request


class Rebalancer(Wisher):
    """Has partitions spread evenly, some or all of them, whatever else goes on."""

    def wish(self) -> ProtoMessage:
        """Some of the most worthwhile moves are to be made."""
        return admin_pb2.RebalancePartitionsRequest(
            most_moves=self.rng.choice((0, 1, 3)),
            bytes_per_second=self.throttles.choice(_THROTTLES),
            timeout_ms=WISH_TIMEOUT_MS,
        )


class QuorumChanger(Wisher):
    """Has other nodes vote in the metadata quorum, as many as it likes. It takes none away while the metadata of a node
    are damaged: that one might be left as one of two, and one of two cannot begin anew.

    Arguments:
        are_whole: whether the metadata of all nodes are sound.
    """

    def __init__(
        self,
        port: Port,
        scheduler: Scheduler,
        stopped: Callable[[], bool],
        interval_us: tuple[int, int],
        are_whole: Callable[[], bool],
    ) -> None:
        self._are_whole = are_whole
        super().__init__("quorum changer", port, scheduler, stopped, interval_us)

    def wish(self) -> ProtoMessage:
        """Some nodes are to vote, and some others no more."""
        rng, nodes = self.rng, self.port.node_ids
        named = rng.sample(nodes, rng.randint(1, min(3, len(nodes))))
        added = rng.randint(0, len(named))
        removed = named[added:] if self._are_whole() else []
        return admin_pb2.AlterQuorumRequest(add=named[:added], remove=removed, timeout_ms=WISH_TIMEOUT_MS)


class NodeDrainer(Wisher):
    """Has nodes drained, to the care of one other or of all, and lets them stay after all; in the end all of them."""

    def wish(self) -> ProtoMessage:
        """Some node is to be drained, or to stay."""
        rng = self.rng
        node = rng.choice(self.port.node_ids)
        if rng.random() < 0.4:
            return _stay(node)
        request = admin_pb2.AlterNodeRequest(
            node_id=node,
            action=admin_pb2.NODE_ACTION_DRAIN,
            timeout_ms=WISH_TIMEOUT_MS,
            bytes_per_second=self.throttles.choice(_THROTTLES),
        )
        if rng.random() < 0.3:
            request.successor = rng.choice(self.port.node_ids)
        return request

    def end(self) -> None:
        """Every node is to stay."""
        for node in self.port.node_ids:
            self.insist(
                _stay(node),
                lambda answer: isinstance(answer, admin_pb2.AlterNodeResponse) and not answer.HasField("error"),
            )


class DiskLoser:
    """Has nodes lose their disks, one after the other: each comes back empty under its id, and is its own replacement.

    A disk is lost only where a majority of every Raft group is left without it, whole and with a say, and after the one
    before was replaced. A node that has part of partitions with a witness is drained first, for beside a witness it
    cannot be its own replacement.
    Now and then the replacement is called off, as by somebody who believes to have found the disk. Some disks were
    damaged, and moved aside by their nodes: those come back by themselves.

    Arguments:
        stopped: whether no further disk is to be lost.
        interval_us: least and most time between two things that it does.
    """

    def __init__(
        self, cluster: SimCluster, scheduler: Scheduler, stopped: Callable[[], bool], interval_us: tuple[int, int]
    ) -> None:
        self._cluster = cluster
        self._scheduler = scheduler
        self._stopped = stopped
        self._interval_us = interval_us
        self._rng = scheduler.stream("disk loser")
        self._damage = scheduler.stream("damaged storage")
        self._lost: int | None = None
        self._says_so_itself = False
        self._former = ""
        self._tick()

    def _tick(self) -> None:
        if self._lost is not None and self._is_replaced(self._lost):
            self._lost = None
        if self._lost is None and self._stopped():
            return
        self._scheduler.after(self._rng.randint(*self._interval_us), self._tick)
        if self._lost is not None:
            # Beside a witness, which it may have been given since, a node cannot come back by itself.
            if not self._says_so_itself or self._next_action(self._lost) != admin_pb2.NODE_ACTION_REPLACE_DISK:
                self._wish(self._lost)
            return
        victim = self._rng.choice(self._cluster.node_ids)
        if self._may_lose(victim):
            self._lost, self._former = victim, self._cluster.identity(victim).directory_id
            self._says_so_itself = self._damage.random() < 0.4
            self._cluster.wipe(victim, moved_aside=self._says_so_itself)

    def _wish(self, node: int) -> None:
        called_off = not self._stopped() and self._rng.random() < 0.1
        action = admin_pb2.NODE_ACTION_UNDRAIN if called_off else self._next_action(node)
        request = admin_pb2.AlterNodeRequest(
            node_id=node, action=action, directory_id=self._former, timeout_ms=WISH_TIMEOUT_MS
        )
        self._cluster.request("disk loser", self._rng.choice(self._cluster.node_ids), request, lambda answer: None)

    def _next_action(self, node: int) -> admin_pb2.NodeAction.ValueType:
        image = newest_image(self._cluster)
        broker = None if image is None else image.brokers.get(node)
        if image is None or broker is None:
            return admin_pb2.NODE_ACTION_REPLACE_DISK
        if any(node in each.hosts and each.witness_hosts for each in image.partitions.values()):
            return admin_pb2.NODE_ACTION_DRAIN
        if broker.leaving:
            # Emptied: now it is replaced, by itself, or it has been.
            return admin_pb2.NODE_ACTION_UNDRAIN
        return admin_pb2.NODE_ACTION_REPLACE_DISK

    def _has_its_place(self, node: int, image: MetadataImage) -> bool:
        """Whether a node is known by the disk that it has now."""
        process, broker = self._cluster.processes[node], image.brokers.get(node)
        known = None if broker is None or broker.is_lost else broker.registration.directory_id
        return process.node is not None and known == process.node.identity.directory_id

    def _may_lose(self, victim: int) -> bool:
        image = newest_image(self._cluster)
        processes = self._cluster.processes.values()
        if image is None or not all(each.running and METADATA_GROUP in each.replicas for each in processes):
            return False
        if any(each.is_moving or each.returning for each in image.partitions.values()):
            return False
        broker, own = image.brokers.get(victim), self._cluster.identity(victim)
        if broker is None or broker.registration.directory_id != own.directory_id:
            return False  # Nobody could say yet which disk is lost.
        if missing_repairs(self._cluster):
            return False
        held = self._cluster.processes[victim].disk.synced
        if not all(is_enough_without(self._cluster, victim, group) for group in held if group != METADATA_GROUP):
            return False
        halves = [
            half for each in processes for hosted in each.replicas.values() for half in hosted.raft.configuration.halves
        ]
        placed = [each.voters for each in image.partitions.values()]
        # Who is to vote alone, or as one of two, may do so a moment after its disk is gone.
        return all(victim not in voters or len(voters) >= 3 for voters in (*halves, *placed, image.quorum.voters))

    def _is_replaced(self, node: int) -> bool:
        """Whether a node has all again that it had on its former disk."""
        image, process = newest_image(self._cluster), self._cluster.processes[node]
        if image is None or process.node is None:
            return False
        lost, leaving = image.lost_disks.by_node.get(node), self._next_action(node) == admin_pb2.NODE_ACTION_UNDRAIN
        is_back = self._has_its_place(node, image) and not leaving and not (lost is not None and lost.voted)
        quiet = is_back and not image.lost_disks.missing()
        return quiet and not any(node in each.hosts for each in image.partitions.values() if each.is_moving)


def _stay(node: int) -> admin_pb2.AlterNodeRequest:
    return admin_pb2.AlterNodeRequest(node_id=node, action=admin_pb2.NODE_ACTION_UNDRAIN, timeout_ms=WISH_TIMEOUT_MS)


class TimeProbe(Operator):
    """Asks for the first offset at or after a time, and compares with the committed log."""

    def ask(self, partition: PartitionName, known: KnownPartition, log: CommittedPartition) -> None:
        """Asks once."""
        node, certain_end = known.leader, self.cluster.told_end(known.group)
        newest_ms = max((batch.max_timestamp_ms for batch in log.batches_in_order[-20:]), default=0)
        timestamp_ms = max(0, newest_ms - self.rng.choice((-1, 0, 1, 100, 1_000, 10_000)))
        if log.batches_in_order and self.rng.random() < 0.5:
            timestamp_ms = self.rng.choice(log.batches_in_order).max_timestamp_ms + self.rng.choice((-1, 0, 1))
        first = 0 if self.rng.random() < 0.7 else self.rng.randint(0, log.next_offset)
        request = pb.ListOffsetsRequest(timeout_ms=500, takes_kafka_batches=True)
        request.partitions.add(
            topic_id=known.topic_id,
            partition=partition.number,
            timestamp_ms=timestamp_ms,
            leader_epoch=-1,
            first_offset=first,
        )

        def served(message: ProtoMessage) -> None:
            assert isinstance(message, pb.ListOffsetsResponse)
            result = message.results[0]
            if result.error.code == ErrorCode.NONE and not result.unfinished:
                wrong = _wrong(log, timestamp_ms, first, certain_end, result)
                if wrong:
                    raise Violation(f"node {node} looks up {timestamp_ms} from {first} on in {partition}: {wrong}")

        def answered(answer: ProtoMessage | Unanswered) -> None:
            if not isinstance(answer, pb.ListOffsetsResponse) or answer.results[0].error.code != ErrorCode.NONE:
                self._directory.refresh()

        self.cluster.request(self.name, node, request, answered, served)


def _wrong(
    log: CommittedPartition, timestamp_ms: int, first: int, certain_end: int, result: pb.ListOffsetsResult
) -> str:
    """What is wrong with the answer to a look-up; empty when nothing is.

    Arguments:
        certain_end: the end that somebody had been told of before it was asked.
    """
    start = max(first, log.log_start)
    if result.offset < 0:
        passed = log.first_reaching(timestamp_ms, start, certain_end)
        return f"nothing is found, but the batch at {passed.base_offset} is of that time" if passed else ""
    found = log.batch_of(result.offset)
    if found is None or found.max_timestamp_ms < timestamp_ms or result.offset < first:
        return f"offset {result.offset} is found, which is not of that time, not committed or too early"
    if result.entry and result.entry != found.entry.data:
        return f"another batch at {parse_header(result.entry).base_offset} comes with offset {result.offset}"
    passed = log.first_reaching(timestamp_ms, start, found.base_offset)
    return f"offset {result.offset} is found, but the batch at {passed.base_offset} comes before it" if passed else ""
