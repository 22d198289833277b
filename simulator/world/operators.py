"""Operators in virtual time: they delete records and names, look up times, move partitions and the metadata quorum, and
replace disks.
"""

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
#: Throttles of moves, in bytes per second. The node's own throttle, which the plan draws, makes them wait: logs are
#: small.
_THROTTLES = (0, 0, 1 << 20, 3 << 20)


def newest_image(cluster: SimCluster) -> MetadataImage | None:
    """Returns the newest metadata image of all nodes."""
    images = [each.image for each in cluster.processes.values() if each.image is not None]
    return max(images, key=lambda image: image.applied_index, default=None)


class Operator:
    """Sends requests to the leaders of partitions from time to time.

    Arguments:
        partitions: partitions to choose from.
        stopped: returns True when to end.
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
        """Sends one request."""
        raise NotImplementedError


class RecordDeleter(Operator):
    """Deletes records before some offset, usually one in the middle of the log."""

    def ask(self, partition: PartitionName, known: KnownPartition, log: CommittedPartition) -> None:
        """Sends one request."""
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
                    f"node {known.leader} reports that {partition} starts at {result.log_start_offset} after a deletion"
                    f" of what is before {before}; committed is {log.log_start}"
                )

        def answered(answer: ProtoMessage | Unanswered) -> None:
            """Ignores the answer: a client that deletes to free space does not retry."""

        self.cluster.request(self.name, known.leader, request, answered, served)


class NameDeleter:
    """Deletes the names of producers that continue to write: each claims its name again, and its earlier requests
    arrive late.

    Arguments:
        names: names to delete, one at a time.
        stopped: returns True when to end.
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
    """Requests changes of the cluster at any time, from any node, without waiting for the result.

    Arguments:
        name: name of its random stream.
        stopped: returns True when to end.
        interval_us: minimum and maximum time between two requests.
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
        target = self.wish()
        self.port.request(self._name, self.rng.choice(self.port.node_ids), target, lambda answer: None)

    def wish(self) -> ProtoMessage:
        """Returns the next request."""
        raise NotImplementedError

    def end(self) -> None:
        """Ends its requests."""

    def insist(self, wish: ProtoMessage, is_taken_on: Callable[[ProtoMessage | Unanswered], bool]) -> None:
        """Sends a request to one node after the other until it is accepted."""

        def answered(answer: ProtoMessage | Unanswered) -> None:
            if not is_taken_on(answer):
                self._scheduler.after(200_000, lambda: self.insist(wish, is_taken_on))

        self.port.request(self._name, self.rng.choice(self.port.node_ids), wish, answered)


class PartitionMover(Wisher):
    """Moves partitions. It also cancels and changes moves.

    Arguments:
        fewest: minimum number of replicas of every partition.
        even: also to an even number of nodes, if there is one more for the witness; otherwise to odd ones only.
        spared: number of nodes that a partition leaves free at any time: one more may have to be drained.
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
        """Returns a request that moves a partition, or cancels its move."""
        rng = self.rng
        name = rng.choice(self._partitions)
        replicas = [] if rng.random() < 0.2 else rng.sample(self.port.node_ids, rng.choice(self._sizes))
        request = admin_pb2.ReassignPartitionsRequest(
            timeout_ms=WISH_TIMEOUT_MS, bytes_per_second=self.throttles.choice(_THROTTLES)
        )
        request.reassignments.add(topic=name.topic, partition=name.number, replicas=replicas)
        return request


class Rebalancer(Wisher):
    """Spreads some or all partitions evenly, at any time."""

    def wish(self) -> ProtoMessage:
        """Returns a request for some of the most worthwhile moves."""
        return admin_pb2.RebalancePartitionsRequest(
            most_moves=self.rng.choice((0, 1, 3)),
            bytes_per_second=self.throttles.choice(_THROTTLES),
            timeout_ms=WISH_TIMEOUT_MS,
        )


class QuorumChanger(Wisher):
    """Changes the voters of the metadata quorum, in any number. It removes none while the metadata of a node are
    damaged: that node might become one of two voters, which cannot start from scratch.

    Arguments:
        are_whole: returns True if the metadata of all nodes are sound.
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
        """Returns a request that adds and removes voters."""
        rng, nodes = self.rng, self.port.node_ids
        named = rng.sample(nodes, rng.randint(1, min(3, len(nodes))))
        added = rng.randint(0, len(named))
        removed = named[added:] if self._are_whole() else []
        return admin_pb2.AlterQuorumRequest(add=named[:added], remove=removed, timeout_ms=WISH_TIMEOUT_MS)


class NodeDrainer(Wisher):
    """Drains nodes, to one other node or to all, and undrains them; at the end all of them."""

    def wish(self) -> ProtoMessage:
        """Returns a request that drains or undrains a node."""
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
        """Undrains every node."""
        for node in self.port.node_ids:
            self.insist(
                _stay(node),
                lambda answer: isinstance(answer, admin_pb2.AlterNodeResponse) and not answer.HasField("error"),
            )


class DiskLoser:
    """Makes nodes lose their disks, one after the other: each returns empty with its id, and is its own replacement.

    A disk is lost only if a sound majority with votes of every Raft group remains without it, and after the previous
    one was replaced. A node with replicas of partitions with a witness is drained first, because beside a witness it
    cannot be its own replacement. Sometimes the replacement is canceled, as by an operator who believes to have found
    the disk. Some disks were damaged, and moved aside by their nodes: those return automatically.

    Arguments:
        stopped: returns True if no further disk may be lost.
        interval_us: minimum and maximum time between two actions.
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
            # Beside a witness, which it may have been assigned since, a node cannot return on its own.
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
            # Emptied: now it is replaced, automatically, or it has been.
            return admin_pb2.NODE_ACTION_UNDRAIN
        return admin_pb2.NODE_ACTION_REPLACE_DISK

    def _has_its_place(self, node: int, image: MetadataImage) -> bool:
        """True if a node is registered with its current disk."""
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
            return False  # The lost disk could not be identified yet.
        if missing_repairs(self._cluster):
            return False
        held = self._cluster.processes[victim].disk.synced
        if not all(is_enough_without(self._cluster, victim, group) for group in held if group != METADATA_GROUP):
            return False
        halves = [
            half for each in processes for hosted in each.replicas.values() for half in hosted.raft.configuration.halves
        ]
        placed = [each.voters for each in image.partitions.values()]
        # A future sole voter, or one of two, may become it just after its disk is lost.
        return all(victim not in voters or len(voters) >= 3 for voters in (*halves, *placed, image.quorum.voters))

    def _is_replaced(self, node: int) -> bool:
        """True if a node has all replicas of its former disk again."""
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
    """Looks up the first offset at or after a time, and compares it with the committed log."""

    def ask(self, partition: PartitionName, known: KnownPartition, log: CommittedPartition) -> None:
        """Sends one request."""
        node, certain_end = known.leader, self.cluster.told_end(known.group)
        newest_ms = max((batch.max_timestamp_ms for batch in log.batches_in_order[-20:]), default=0)
        timestamp_ms = max(0, newest_ms - self.rng.choice((-1, 0, 1, 100, 1_000, 10_000)))
        if log.batches_in_order and self.rng.random() < 0.5:
            # Some batches have no timestamp (-1); negative times have other meanings.
            timestamp_ms = max(0, self.rng.choice(log.batches_in_order).max_timestamp_ms + self.rng.choice((-1, 0, 1)))
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
    """Returns the error in the answer to a lookup; empty if none exist.

    Arguments:
        certain_end: the end that was reported to some client before the request.
    """
    start = max(first, log.log_start)
    if result.offset < 0:
        passed = log.first_reaching(timestamp_ms, start, certain_end)
        return f"no offset is found, but the batch at {passed.base_offset} is of that time" if passed else ""
    found = log.batch_of(result.offset)
    if found is None or found.max_timestamp_ms < timestamp_ms or result.offset < first:
        return f"offset {result.offset} is found, which is not of that time, not committed or too early"
    if result.entry and result.entry != found.entry.data:
        return f"another batch at {parse_header(result.entry).base_offset} comes with offset {result.offset}"
    passed = log.first_reaching(timestamp_ms, start, found.base_offset)
    return f"offset {result.offset} is found, but the batch at {passed.base_offset} comes before it" if passed else ""
