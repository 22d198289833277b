"""Transaction coordinators on several nodes: creation on first use, decisions and their markers, failover, timeouts.

The partitions that take part are the test's own: each node answers for those that it leads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from transactional_cluster import NAME, PARTITIONS, TransactionalCluster

from quorumlog.server.deciding.transaction_participants import Identity, OpenHere, Participant
from quorumlog.server.step.wire_errors import error
from quorumlog.server.transactions.participants import PULL_US, ParticipantService
from quorumlog.v1 import errors_pb2, groups_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.kafka.control import LogPlace
from quorumlog.wire.topic_names import TRANSACTIONS_TOPIC


class Log:
    """State of the participants of all nodes: each is one object, whichever node leads it.

    Attributes:
        answers: False: no node answers decisions.
        open: the transactions that are open, by participant and producer id.
        ended: the decisions that were carried out, in order.
    """

    def __init__(self) -> None:
        self.answers = True
        self.open: dict[tuple[Participant, int], OpenHere] = {}
        self.ended: list[peer_pb2.EndTransaction] = []


class Participants:
    """The participants on one node."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def open(self, transaction: OpenHere, term: int) -> errors_pb2.Error | None:
        self._log.open[transaction.participant, transaction.identity.producer_id] = transaction
        return None

    def end(self, decision: peer_pb2.EndTransaction, ended: Callable[[errors_pb2.Error | None], None]) -> None:
        if not self._log.answers:
            ended(error(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not now"))
            return
        part = decision.participant
        key = Participant(part.topic_id, part.partition), decision.identity.producer_id
        self._log.open.pop(key, None)
        self._log.ended.append(decision)
        ended(None)

    @property
    def are_open(self) -> bool:
        return bool(self._log.open)

    def open_longer_than(self, age_us: int) -> Iterable[OpenHere]:
        return list(self._log.open.values())


class Transactional(TransactionalCluster):
    """A quiet cluster with transaction coordinators and participants, and a client that sends requests."""

    def __init__(self, seed: int, nodes: int = 3, coordinators: int = 1, checkpoint_entries: int = 5_000) -> None:
        self.log = Log()
        self.services: dict[int, ParticipantService] = {}
        super().__init__(seed, nodes=nodes, coordinators=coordinators, checkpoint_entries=checkpoint_entries)
        for node in self.cluster.node_ids:
            self.attach(node)

    def attach(self, node: int) -> None:
        """Connects the participants of a node that has started."""
        running = self.cluster.processes[node].node
        assert running is not None
        self.until(lambda: running._member is not None, 5)
        member = running._member
        assert member is not None
        services, traffic = member.services, member._traffic
        replicas = services.replicas.partitions
        service = ParticipantService(
            Participants(self.log), member.metadata.replica, replicas, traffic.client, running._member._time.now
        )
        traffic.declare("end_transactions", service.end)
        self.services[node] = service

    def outcomes(self) -> dict[int, bool]:
        """The outcome that each partition has received last."""
        return {each.participant.partition: each.commit for each in self.log.ended}


@pytest.mark.parametrize(("nodes", "factor"), [(1, 1), (3, 3)])
def test_coordinators_are_created_on_first_use(nodes: int, factor: int) -> None:
    cluster = Transactional(1, nodes=nodes, coordinators=4)
    assert not cluster.shards(), "no client has asked for one"
    cluster.coordinator()
    image = next(process.image for process in cluster.cluster.processes.values() if process.image is not None)
    topic = image.topics[TRANSACTIONS_TOPIC]
    assert [len(partition.replicas) for partition in topic.partitions] == [factor] * 4
    assert "__groups" not in image.topics


def test_commit_reaches_every_partition() -> None:
    cluster = Transactional(2)
    producer = cluster.init()
    assert not cluster.add(producer, 0, 1, 3).code
    answer = cluster.end(producer)
    assert answer.markers_committed and answer.identity.producer_epoch == producer.epoch + 1
    assert cluster.outcomes() == {0: True, 1: True, 3: True}
    cluster.run(2)
    assert len(cluster.log.ended) == 3, "a participant that has answered is not asked again"
    cluster.until(lambda: all(shard.table.records[NAME].is_idle for shard in cluster.shards()), 5)


def test_new_instance_aborts_and_fences() -> None:
    cluster = Transactional(3)
    former = cluster.init()
    cluster.add(former, 0)
    following = cluster.init()
    assert following == Identity(former.producer_id, former.epoch + 1)
    assert cluster.outcomes() == {0: False}
    assert cluster.end(former).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert cluster.add(former, 1).code == ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("checkpoint_entries", [2, 5_000])
def test_next_leader_pushes_what_is_not_answered(checkpoint_entries: int) -> None:
    """The coordinator fails between its decision and the markers. The next one has the decision, from the log or from a
    snapshot, and answers the repeated request like the first."""
    cluster = Transactional(4, checkpoint_entries=checkpoint_entries)
    cluster.log.answers = False
    producer = cluster.init()
    cluster.add(producer, 0, 2)
    first = cluster.end(producer)
    assert not first.markers_committed and not first.HasField("error")
    failed = cluster.coordinator()
    cluster.cluster.processes[failed].die(silent=True)
    cluster.log.answers = True
    again = cluster.end(producer)
    assert again.identity == first.identity and again.markers_committed
    assert cluster.outcomes() == {0: True, 2: True}
    cluster.cluster.start(failed)
    cluster.attach(failed)
    cluster.run(3)
    snapshots = {shard.table.to_snapshot(0) for shard in cluster.shards()}
    assert len(cluster.shards()) == 3 and len(snapshots) == 1


def test_timeout_aborts() -> None:
    cluster = Transactional(5)
    producer = cluster.init(timeout_ms=3_000)
    cluster.add(producer, 1)
    cluster.run(2.5)
    assert not cluster.log.ended
    cluster.until(lambda: cluster.outcomes() == {1: False}, 2)
    assert cluster.end(producer).error.code == ErrorCode.TRANSACTION_ABORTABLE


def _item(cluster: Transactional, of: Identity, number: int) -> peer_pb2.Enlistment:
    item = peer_pb2.Enlistment(transactional_id=NAME)
    item.identity.producer_id, item.identity.producer_epoch = of
    item.participant.topic_id, item.participant.partition = cluster.topic_id(), number
    return item


def test_leader_enlists_its_partition() -> None:
    cluster = Transactional(6)
    producer = cluster.init()
    results: list[peer_pb2.EnlistmentResult] = []
    for node, service in cluster.services.items():
        service.enlist(_item(cluster, producer, node % PARTITIONS), 1, results.append)
        service.enlist(_item(cluster, Identity(99, 0), 0), 1, results.append)
    cluster.until(lambda: _flushed(cluster, results) == 6, 5)
    assert sorted(each.error.code for each in results) == [0, 0, 0, *[ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 3]
    assert len({each.place.index for each in results if not each.HasField("error")}) == 1
    assert len(cluster.log.open) == 3
    assert cluster.end(producer).markers_committed
    assert not cluster.log.open


def _flushed(cluster: Transactional, results: list[peer_pb2.EnlistmentResult]) -> int:
    """Sends what the participants have to send, as the node does after each step."""
    for node, service in cluster.services.items():
        running = cluster.cluster.processes[node].node
        if running is not None:
            service.after_events(running._member._time.now, 0)
            cluster.cluster.processes[node]._wake()
    return len(results)


def test_leader_asks_what_became_of_a_transaction() -> None:
    """The markers never arrive. Each participant asks, and carries out the decision; one of which the coordinator
    has no record is aborted; an open one stays open."""
    cluster = Transactional(7)
    producer = cluster.init()
    cluster.add(producer, 0)
    shard = next(shard for shard in cluster.shards() if shard.leads)
    transaction = shard.table.records[NAME].open
    assert transaction is not None
    here = Participant(cluster.topic_id(), 0)
    lost = Participant(cluster.topic_id(), 3)
    cluster.log.open[here, producer.producer_id] = OpenHere(here, producer, 0, transaction.place)
    cluster.log.open[lost, 99] = OpenHere(lost, Identity(99, 0), 0, LogPlace(1, 1))

    def pulled() -> None:
        for node, service in cluster.services.items():
            running = cluster.cluster.processes[node].node
            assert running is not None
            service._pull_due = running._member._time.now
            service.on_time(running._member._time.now, 0)
            cluster.cluster.processes[node]._wake()
        cluster.run(1)

    pulled()
    assert list(cluster.log.open) == [(here, producer.producer_id)]
    assert {(each.participant.partition, each.commit) for each in cluster.log.ended} == {(3, False)}
    cluster.log.answers = False
    cluster.end(producer)
    cluster.log.answers = True
    pulled()
    assert not cluster.log.open and cluster.outcomes()[0]
    assert PULL_US == 10_000_000


def test_unknown_type_of_coordinators() -> None:
    cluster = Transactional(8, nodes=1)
    answer = cluster.ask(1, groups_pb2.FindCoordinatorsRequest(group_ids=["g"], type=7))  # type: ignore[arg-type]
    assert answer.error.code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]
    bad = groups_pb2.FindCoordinatorsRequest(group_ids=[""], type=groups_pb2.COORDINATOR_TYPE_TRANSACTION)
    found = cluster.ask(1, bad)
    assert isinstance(found, groups_pb2.FindCoordinatorsResponse)
    assert found.coordinators[0].error.code == ErrorCode.INVALID_REQUEST
