"""The controller refuses what cannot be, watches brokers, and proposes each thing once."""

import random

import pytest

from quorumlog.raft.types import Configuration
from quorumlog.server.controller.controller import Controller, ControllerOptions
from quorumlog.server.controller.decision import ControllerDecision
from quorumlog.server.controller.replica_assignment import TopicLimits
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import FEATURE_LEVEL, FIRST_PARTITION_GROUP
from quorumlog.v1 import admin_pb2, errors_pb2, peer_pb2
from quorumlog.v1 import metadata_log_pb2 as log
from quorumlog.v1.errors_pb2 import ErrorCode

SECOND = 1_000_000
GROUP = FIRST_PARTITION_GROUP


class Cluster:
    """A controller whose proposals are applied when the test requests it."""

    def __init__(self, nodes: int = 3, *, topics: TopicLimits | None = None) -> None:
        self.image = MetadataImage()
        self.now = 0
        self.options = ControllerOptions(topics=topics or TopicLimits())
        self.quorum_changes = False
        #: Those of the metadata group.
        self.members = Configuration((1, 2, 3))
        self.take_over()
        for node in range(1, nodes + 1):
            self.ask(register_broker=registration(node))
        self.beat(*range(1, nodes + 1))
        self.run_until(self.now)
        # The first heartbeat of a node that is up raises the feature level.
        self.beat(*range(1, nodes + 1))

    def take_over(self) -> None:
        """Replaces the controller by a new one, which has only the image."""
        self.controller = Controller(
            self.image, self.now, random.Random(1), self.options, lambda: self.members, lambda: self.quorum_changes
        )

    @property
    def voters(self) -> tuple[int, ...]:
        """The voters of the metadata group."""
        return self.members.voters

    @voters.setter
    def voters(self, voters: tuple[int, ...]) -> None:
        self.members = Configuration(voters)

    def decide(self, **body: object) -> ControllerDecision:
        request = peer_pb2.ControllerRequest(request_id=77, **body)  # type: ignore[arg-type]
        return self.controller.handle(self.now, 1234, request)

    def commit(self, decision: ControllerDecision) -> peer_pb2.ControllerResponse:
        if decision.response is not None:
            return decision.response
        return decision.answer([self.image.apply(self.image.applied_index + 1, c) for c in decision.commands])

    def ask(self, **body: object) -> peer_pb2.ControllerResponse:
        response = self.commit(self.decide(**body))
        assert response.request_id == 77
        return response

    def commit_one(self, **body: object) -> None:
        """Applies one command."""
        self.image.apply(self.image.applied_index + 1, log.MetadataCommand(timestamp_ms=1234, **body))  # type: ignore[arg-type]

    def epoch(self, node: int) -> int:
        return self.image.brokers[node].epoch

    def beat(self, *nodes: int, stopping: bool = False) -> None:
        for node in nodes:
            self.ask(heartbeat=self.heartbeat(node, stopping=stopping))

    def heartbeat(self, node: int, *, applied: int | None = None, stopping: bool = False) -> peer_pb2.BrokerHeartbeat:
        return peer_pb2.BrokerHeartbeat(
            node_id=node,
            broker_epoch=self.epoch(node),
            applied_index=self.image.applied_index if applied is None else applied,
            stopping=stopping,
        )

    def run_until(self, end: int, *, beating: tuple[int, ...] = ()) -> list[log.MetadataCommand]:
        """Lets time pass in heartbeat intervals, applies what is proposed on the way, and returns it."""
        proposed = []
        while True:
            if self.controller.next_deadline <= self.now:
                for command in self.controller.on_time(self.now, 1234):
                    proposed.append(command)
                    self.image.apply(self.image.applied_index + 1, command)
            if self.now >= end:
                return proposed
            self.now = min(end, max(self.now + 1, min(self.controller.next_deadline, self.now + SECOND // 2)))
            self.beat(*beating)

    def create(self, *topics: admin_pb2.NewTopic, validate_only: bool = False) -> list[admin_pb2.CreateTopicResult]:
        request = admin_pb2.CreateTopicsRequest(topics=topics, validate_only=validate_only)
        return list(self.ask(create_topics=request).create_topics.results)

    def fenced(self) -> list[int]:
        return [node for node, broker in self.image.brokers.items() if broker.fenced]


def registration(node: int, *, boot: int = 1, **fields: object) -> peer_pb2.RegisterBroker:
    made = peer_pb2.RegisterBroker(
        node_id=node,
        directory_id=f"dir-{node}",
        boot_id=boot,
        host="127.0.0.1",
        port=19000 + abs(node),
        feature_level=FEATURE_LEVEL,
    )
    made.MergeFrom(peer_pb2.RegisterBroker(**fields))  # type: ignore[arg-type]
    return made


def new_topic(name: str = "orders", partitions: int = 3, factor: int = 3, **configs: str) -> admin_pb2.NewTopic:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    return admin_pb2.NewTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=named)


# -- liveness -----------------------------------------------------------------------------------------------------


def test_a_broker_is_unfenced_when_it_has_applied_its_registration() -> None:
    cluster = Cluster(nodes=0)
    cluster.ask(register_broker=registration(1))
    behind = cluster.decide(heartbeat=cluster.heartbeat(1, applied=0)).response
    assert behind is not None
    assert behind.heartbeat.fenced
    assert not cluster.run_until(SECOND)
    cluster.beat(1)
    assert cluster.controller.next_deadline <= cluster.now
    cluster.run_until(cluster.now)
    assert cluster.fenced() == []


def test_a_silent_broker_is_fenced_after_three_seconds_and_the_others_are_not() -> None:
    cluster = Cluster()
    cluster.create(new_topic())
    cluster.run_until(3 * SECOND - 1, beating=(1, 2))
    assert cluster.fenced() == []
    cluster.run_until(3 * SECOND, beating=(1, 2))
    assert cluster.fenced() == [3]
    assert all(3 not in partition.isr for partition in cluster.image.partitions.values())
    cluster.run_until(20 * SECOND, beating=(1, 2))
    assert cluster.fenced() == [3]


def test_a_broker_that_is_heard_again_comes_back() -> None:
    cluster = Cluster()
    cluster.run_until(4 * SECOND, beating=(1, 2))
    cluster.beat(3)
    cluster.run_until(cluster.now)
    assert cluster.fenced() == []


def test_a_new_controller_gives_everybody_a_whole_session() -> None:
    cluster = Cluster()
    cluster.run_until(2_900_000, beating=(1, 2))
    cluster.take_over()
    cluster.run_until(cluster.now + 3 * SECOND - 1, beating=(1, 2))
    assert cluster.fenced() == []
    cluster.run_until(cluster.now + 1, beating=(1, 2))
    assert cluster.fenced() == [3]


def test_a_controller_that_was_suspended_fences_nobody_for_that() -> None:
    cluster = Cluster()
    cluster.run_until(2 * SECOND, beating=(1, 2, 3))
    cluster.now += 60 * SECOND
    assert cluster.controller.on_time(cluster.now, 0) == []
    cluster.run_until(cluster.now + 4 * SECOND, beating=(1, 2))
    assert cluster.fenced() == [3]


def test_a_command_under_way_is_not_proposed_again_until_it_must_be_lost() -> None:
    cluster = Cluster()
    cluster.run_until(2 * SECOND, beating=(1, 2))
    cluster.now = 3 * SECOND
    cluster.beat(1, 2)
    (command,) = cluster.controller.on_time(cluster.now, 0)
    for _ in range(5):
        cluster.now += SECOND // 2
        cluster.beat(1, 2)
        assert cluster.controller.on_time(cluster.now, 0) == []
    cluster.now += SECOND // 2
    assert [c.fence_brokers for c in cluster.controller.on_time(cluster.now, 0)] == [command.fence_brokers]


def test_a_lost_command_is_proposed_again_however_often_brokers_are_heard() -> None:
    cluster = Cluster()
    cluster.run_until(4 * SECOND, beating=(1, 2))
    cluster.beat(3)
    assert cluster.controller.on_time(cluster.now, 0), "lost: no node applies it"
    for _ in range(40):
        cluster.now += SECOND // 10
        cluster.beat(1, 2, 3)
        cluster.run_until(cluster.now)
    assert cluster.fenced() == []


def test_a_stopping_broker_is_fenced_at_once_and_told_when_it_is() -> None:
    cluster = Cluster()
    decision = cluster.decide(heartbeat=cluster.heartbeat(2, stopping=True))
    assert decision.response is None
    late = cluster.heartbeat(2)
    assert cluster.commit(decision).heartbeat.fenced
    assert cluster.fenced() == [2]
    assert cluster.ask(heartbeat=late).heartbeat.fenced
    cluster.run_until(SECOND, beating=(1, 3))
    assert cluster.fenced() == [2], "a heartbeat from before the stop brought the broker back"


def test_a_stopped_broker_that_starts_again_comes_back() -> None:
    cluster = Cluster()
    cluster.beat(2, stopping=True)
    cluster.ask(register_broker=registration(2, boot=2))
    cluster.beat(2)
    cluster.run_until(cluster.now)
    assert cluster.fenced() == []


def test_a_heartbeat_of_a_former_life_is_told_to_register_again() -> None:
    cluster = Cluster()
    old = cluster.heartbeat(1)
    cluster.ask(register_broker=registration(1, boot=2))
    response = cluster.ask(heartbeat=old)
    assert response.error.code == ErrorCode.STALE_BROKER_EPOCH
    assert "register again" in response.error.message
    unknown = cluster.ask(heartbeat=peer_pb2.BrokerHeartbeat(node_id=9, broker_epoch=1))
    assert unknown.error.code == ErrorCode.STALE_BROKER_EPOCH


# -- registration -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (registration(-1), ErrorCode.INVALID_REQUEST),
        (registration(4, directory_id="x" * 65), ErrorCode.INVALID_REQUEST),
        (registration(4, port=70_000), ErrorCode.INVALID_REQUEST),
        (registration(4, rack="r" * 256), ErrorCode.INVALID_REQUEST),
        (registration(1, directory_id="other"), ErrorCode.DUPLICATE_BROKER_REGISTRATION),
    ],
)
def test_an_impossible_registration_never_reaches_the_log(wrong: peer_pb2.RegisterBroker, code: int) -> None:
    decision = Cluster().decide(register_broker=wrong)
    assert not decision.commands
    assert decision.response is not None
    assert decision.response.error.code == code
    assert "\n" not in decision.response.error.message


# -- topics -------------------------------------------------------------------------------------------------------


def test_topics_are_created_spread_over_the_nodes() -> None:
    cluster = Cluster()
    (result,) = cluster.create(new_topic(partitions=6))
    topic = cluster.image.topics["orders"]
    assert result.topic_id == topic.topic_id
    assert len(result.topic_id) == 16
    assert sorted(partition.replicas[0] for partition in topic.partitions) == [1, 1, 2, 2, 3, 3]
    assert all(sorted(partition.isr) == [1, 2, 3] for partition in topic.partitions)


@pytest.mark.parametrize(
    ("topic", "code", "line"),
    [
        (new_topic(""), ErrorCode.INVALID_TOPIC, "0 characters"),
        (new_topic("x" * 250), ErrorCode.INVALID_TOPIC, "1 to 249"),
        (new_topic("."), ErrorCode.INVALID_TOPIC, "'.' and '..'"),
        (new_topic(".."), ErrorCode.INVALID_TOPIC, "'.' and '..'"),
        (new_topic("a b"), ErrorCode.INVALID_TOPIC, "use only letters"),
        (new_topic("a\n"), ErrorCode.INVALID_TOPIC, "use only letters"),
        (new_topic("größe"), ErrorCode.INVALID_TOPIC, "use only letters"),
        (new_topic("__groups"), ErrorCode.INVALID_TOPIC, "'__groups' is reserved"),
        (new_topic("_.groups"), ErrorCode.INVALID_TOPIC, "'_.groups' is reserved"),
        (new_topic("__cluster_metadata"), ErrorCode.INVALID_TOPIC, "reserved"),
        (new_topic("__consumer_offsets"), ErrorCode.INVALID_TOPIC, "reserved"),
        (new_topic("__transaction_state"), ErrorCode.INVALID_TOPIC, "reserved"),
        (new_topic("__share_group_state"), ErrorCode.INVALID_TOPIC, "reserved"),
        (new_topic(partitions=0), ErrorCode.INVALID_PARTITIONS, "1 to 2000"),
        (new_topic(partitions=2_001), ErrorCode.INVALID_PARTITIONS, "1 to 2000"),
        (new_topic(factor=0), ErrorCode.INVALID_REPLICATION_FACTOR, "use 3"),
        (new_topic(factor=-1), ErrorCode.INVALID_REPLICATION_FACTOR, "use 3"),
        (new_topic(factor=4), ErrorCode.INVALID_REPLICATION_FACTOR, "needs 5 nodes, 4 for the copies"),
        (new_topic(factor=5), ErrorCode.INVALID_REPLICATION_FACTOR, "needs 5 nodes, and 3 are registered"),
        (new_topic(retention_ms="abc"), ErrorCode.INVALID_CONFIG, "retention.ms=abc: expected an integer"),
        (new_topic(retention_m="1"), ErrorCode.INVALID_CONFIG, "did you mean retention.ms?"),
        (new_topic(min_insync_replicas="4"), ErrorCode.INVALID_CONFIG, "more than the replication factor 3"),
    ],
)
def test_an_impossible_topic_is_refused_in_one_line(topic: admin_pb2.NewTopic, code: int, line: str) -> None:
    cluster = Cluster()
    before = cluster.image.applied_index
    (result,) = cluster.create(topic)
    assert result.error.code == code
    assert line in result.error.message
    assert "\n" not in result.error.message
    assert result.error.definite
    assert cluster.image.applied_index == before


def test_fenced_nodes_are_passed_over() -> None:
    cluster = Cluster()
    cluster.beat(2, stopping=True)
    cluster.create(new_topic("single", partitions=4, factor=1))
    assert {p.replicas[0] for p in cluster.image.topics["single"].partitions} == {1, 3}


def test_each_topic_of_a_request_succeeds_or_fails_on_its_own_in_order() -> None:
    cluster = Cluster()
    results = cluster.create(new_topic("a"), new_topic("b", factor=4), new_topic("c"), new_topic("a_b"))
    assert [(r.name, r.error.code) for r in results] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.INVALID_REPLICATION_FACTOR),
        ("c", ErrorCode.NONE),
        ("a_b", ErrorCode.NONE),
    ]
    assert list(cluster.image.topics) == ["a", "c", "a_b"]
    (collision,) = cluster.create(new_topic("a.b"))
    assert collision.error.code == ErrorCode.INVALID_TOPIC


def test_a_name_twice_in_a_request_is_refused_both_times() -> None:
    results = Cluster().create(new_topic("a"), new_topic("a"), new_topic("b"))
    assert [r.error.code for r in results] == [ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]


def test_of_two_creations_under_way_the_first_in_the_log_wins() -> None:
    cluster = Cluster()
    request = admin_pb2.CreateTopicsRequest(topics=[new_topic()])
    first, second = cluster.decide(create_topics=request), cluster.decide(create_topics=request)
    assert cluster.commit(second).create_topics.results[0].error.code == ErrorCode.NONE
    assert cluster.commit(first).create_topics.results[0].error.code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_topics_under_way_count_as_load() -> None:
    cluster = Cluster()
    decisions = [
        cluster.decide(create_topics=admin_pb2.CreateTopicsRequest(topics=[new_topic(f"t{i}", 1, 1)])) for i in range(3)
    ]
    for decision in decisions:
        cluster.commit(decision)
    assert sorted(partition.replicas for partition in cluster.image.partitions.values()) == [(1,), (2,), (3,)]


def test_validate_only_says_what_would_happen_and_does_nothing() -> None:
    cluster = Cluster()
    before = cluster.image.to_snapshot()
    results = cluster.create(new_topic("good"), new_topic("bad", partitions=0), validate_only=True)
    assert [r.error.code for r in results] == [ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS]
    assert cluster.image.to_snapshot() == before


def test_a_request_has_a_limit_of_topics_and_a_node_of_replicas() -> None:
    cluster = Cluster(topics=TopicLimits(request_topics=2, node_replicas=4))
    request = admin_pb2.CreateTopicsRequest(topics=[new_topic(f"t{i}") for i in range(3)])
    assert cluster.ask(create_topics=request).error.code == ErrorCode.INVALID_REQUEST
    (first,) = cluster.create(new_topic("a", partitions=3))
    (second,) = cluster.create(new_topic("b", partitions=2))
    assert first.error.code == ErrorCode.NONE
    assert second.error.code == ErrorCode.INVALID_PARTITIONS
    assert "5 replicas, at most 4" in second.error.message


# -- partitions ---------------------------------------------------------------------------------------------------


def report(cluster: Cluster, node: int, epoch: int) -> peer_pb2.ReportLeaders:
    reports = [peer_pb2.LeaderReport(group=GROUP, leader_epoch=epoch)]
    return peer_pb2.ReportLeaders(node_id=node, broker_epoch=cluster.epoch(node), reports=reports)


def test_a_report_that_is_known_or_refused_is_answered_without_an_entry() -> None:
    cluster = Cluster()
    cluster.create(new_topic())
    cluster.ask(report_leaders=report(cluster, 1, 2))
    before = cluster.image.applied_index
    known = cluster.ask(report_leaders=report(cluster, 1, 2)).partition_changes.results[0]
    late = cluster.ask(report_leaders=report(cluster, 2, 1)).partition_changes.results[0]
    assert (known.error.code, known.partition_epoch) == (ErrorCode.NONE, 1)
    assert late.error.code == ErrorCode.FENCED_LEADER_EPOCH
    assert cluster.image.applied_index == before


def test_an_isr_change_that_cannot_hold_is_answered_without_an_entry() -> None:
    cluster = Cluster()
    cluster.create(new_topic())
    cluster.ask(report_leaders=report(cluster, 1, 2))
    before = cluster.image.applied_index
    member = peer_pb2.IsrMember(node_id=1, broker_epoch=cluster.epoch(1))
    change = peer_pb2.IsrChange(group=GROUP, leader_epoch=2, partition_epoch=0, isr=[member])
    body = peer_pb2.AlterIsr(node_id=1, broker_epoch=cluster.epoch(1), changes=[change])
    (refused,) = cluster.ask(alter_isr=body).partition_changes.results
    assert (refused.error.code, refused.partition_epoch) == (ErrorCode.INVALID_UPDATE_VERSION, 1)
    assert cluster.image.applied_index == before
    change.partition_epoch = 1
    body = peer_pb2.AlterIsr(node_id=1, broker_epoch=cluster.epoch(1), changes=[change])
    (done,) = cluster.ask(alter_isr=body).partition_changes.results
    assert (done.error.code, done.partition_epoch) == (ErrorCode.NONE, 2)
    assert cluster.image.partitions[GROUP].isr == (1,)


def test_brokers_get_producer_ids_only_in_their_current_life() -> None:
    cluster = Cluster()
    body = peer_pb2.AllocateProducerIds(node_id=1, broker_epoch=cluster.epoch(1))
    assert cluster.ask(allocate_producer_ids=body).producer_id_block.count == 1000
    cluster.ask(register_broker=registration(1, boot=2))
    assert cluster.ask(allocate_producer_ids=body).error.code == ErrorCode.STALE_BROKER_EPOCH


def test_what_the_controller_does_not_answer_is_refused() -> None:
    cluster = Cluster()
    for response in (cluster.ask(), cluster.ask(describe_quorum=admin_pb2.DescribeQuorumRequest())):
        assert response.error.code == ErrorCode.INVALID_REQUEST


def test_named_producers_are_claimed_through_the_log_and_impossible_claims_are_not() -> None:
    cluster = Cluster()
    first = cluster.ask(claim_producer=peer_pb2.ClaimProducer(name="etl", epoch=-1, known_epoch=-1)).producer_claimed
    again = cluster.ask(claim_producer=peer_pb2.ClaimProducer(name="etl", epoch=7)).producer_claimed
    assert (again.producer_id, again.producer_epoch) == (first.producer_id, 7)
    for name, epoch, code in (("etl", 6, ErrorCode.INVALID_PRODUCER_EPOCH), ("", -1, ErrorCode.INVALID_REQUEST)):
        decision = cluster.decide(claim_producer=peer_pb2.ClaimProducer(name=name, epoch=epoch))
        assert decision.response is not None
        assert decision.response.error.code == code


# -- moves --------------------------------------------------------------------------------------------------------


def test_a_word_of_the_end_of_a_move_counts_for_the_wish_that_it_fulfils() -> None:
    """A report of a completed move counts only for the request that it fulfils: a late one must not complete a later
    request for the same nodes."""
    cluster = Cluster(nodes=4)
    cluster.create(new_topic(partitions=1))
    partition = cluster.image.partitions[GROUP]
    here, there = partition.replicas, (*partition.replicas[:2], *({1, 2, 3, 4} - {*partition.replicas}))
    leader = here[0]
    cluster.ask(report_leaders=report(cluster, leader, 1))

    def wish(*replicas: int) -> int:
        cluster.commit_one(reassign_replicas=log.ReassignReplicas(group=GROUP, replicas=replicas))
        return partition.wishes

    def moved(number: int) -> errors_pb2.Error:
        body = peer_pb2.ReplicasMoved(
            node_id=leader, broker_epoch=cluster.epoch(leader), group=GROUP, leader_epoch=1, replicas=here, wish=number
        )
        answer = cluster.ask(replicas_moved=body)
        return answer.error if answer.HasField("error") else answer.partition_changes.results[0].error

    wish(*there)
    late = wish(*here)
    wish(*there)
    last = wish(*here)
    refused = moved(late)
    assert refused.code == ErrorCode.INVALID_UPDATE_VERSION
    assert f"its request 4 is for nodes {list(here)}, not request 2 for {list(here)}" in refused.message
    assert partition.is_moving
    assert moved(last).code == ErrorCode.NONE
    assert partition.replicas == here
    assert not partition.is_moving
    again = moved(last)
    assert again.code == ErrorCode.INVALID_UPDATE_VERSION
    assert f"is no longer being moved: it is on nodes {list(here)}" in again.message
