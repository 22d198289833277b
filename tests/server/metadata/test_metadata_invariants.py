"""Whatever brokers, leaders and clients do in whatever order, the image keeps I12, and every node gets the same one."""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quorumlog.raft.types import Configuration
from quorumlog.server.controller.controller import Controller, ControllerOptions
from quorumlog.server.controller.decision import ControllerDecision
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import FEATURE_LEVEL
from quorumlog.v1 import admin_pb2, peer_pb2
from quorumlog.v1 import metadata_log_pb2 as log

NODES = st.integers(1, 5)


TOPICS = st.sampled_from(["a.b", "a_b", "c", "d", "__x"])


class MetadataMachine(RuleBasedStateMachine):
    """One controller at a time; its proposals are committed late and in any interleaving with requests, or lost when
    it is replaced. A second image follows the log, and goes through a snapshot now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.image = MetadataImage()
        self.follower = MetadataImage()
        self.now = 0
        self.rng = random.Random(0)
        self.controller = self.elected()
        self.proposed: list[log.MetadataCommand] = []
        self.boots = dict.fromkeys(range(1, 6), 0)
        self.epochs_seen: dict[int, tuple[int, int]] = {}
        self.blocks: set[int] = set()
        self.groups_seen: dict[int, bytes] = {}
        self.stale_changes: list[peer_pb2.AlterIsr] = []

    def elected(self) -> Controller:
        return Controller(self.image, self.now, self.rng, ControllerOptions(), lambda: Configuration((1, 2, 3)))

    def ask(self, **body: object) -> ControllerDecision:
        decision = self.controller.handle(self.now, self.now, peer_pb2.ControllerRequest(request_id=1, **body))  # type: ignore[arg-type]
        self.proposed += decision.commands
        assert (decision.response is None) == bool(decision.commands)
        return decision

    def epoch(self, node: int) -> int:
        broker = self.image.brokers.get(node)
        return broker.epoch if broker is not None else 0

    @initialize()
    def brokers_come_up_and_a_topic_is_made(self) -> None:
        for node in self.boots:
            self.a_broker_registers(node, again=False, wiped=False)
        self.proposals_are_committed(5)
        self.time_passes(1, set())
        self.proposals_are_committed(1)
        self.a_client_creates_a_topic(3, 5, "d")
        self.proposals_are_committed(1)
        assert len(self.image.partitions) == 3

    # -- what happens ---------------------------------------------------------------------------------------------

    @rule(node=NODES, again=st.booleans(), wiped=st.booleans())
    def a_broker_registers(self, node: int, again: bool, wiped: bool) -> None:
        self.boots[node] += not again
        body = peer_pb2.RegisterBroker(
            node_id=node,
            directory_id=f"dir-{node}" + wiped * "-wiped",
            boot_id=self.boots[node],
            host="h",
            port=1,
            rack=f"rack-{node % 3}",
            feature_level=FEATURE_LEVEL,
        )
        self.ask(register_broker=body)

    @rule(node=NODES, stopping=st.booleans(), behind=st.booleans())
    def a_broker_beats(self, node: int, stopping: bool, behind: bool) -> None:
        applied = 0 if behind else self.image.applied_index
        self.ask(
            heartbeat=peer_pb2.BrokerHeartbeat(
                node_id=node, broker_epoch=self.epoch(node), applied_index=applied, stopping=stopping
            )
        )

    @rule(passed=st.sampled_from([1, 500_000, 1_400_000, 3_000_000, 10_000_000]), silent=st.sets(NODES))
    def time_passes(self, passed: int, silent: set[int]) -> None:
        self.now += passed
        for node in set(self.boots) - silent:
            self.a_broker_beats(node, stopping=False, behind=False)
        self.proposed += self.controller.on_time(self.now, self.now)

    @rule(count=st.integers(1, 10))
    def proposals_are_committed(self, count: int) -> None:
        for command in self.proposed[:count]:
            index = self.image.applied_index + 1
            result = self.image.apply(index, command)
            assert self.follower.apply(index, command).response == result.response
            block = result.response.producer_id_block
            if block.count:
                assert block.first_id not in self.blocks
                self.blocks.add(block.first_id)
        del self.proposed[:count]

    @rule(lost=st.integers(0, 3))
    def another_controller_is_elected(self, lost: int) -> None:
        del self.proposed[len(self.proposed) - min(lost, len(self.proposed)) :]
        self.controller = self.elected()

    @rule()
    def the_follower_restarts_from_a_snapshot(self) -> None:
        self.follower = MetadataImage.from_snapshot(self.follower.to_snapshot())

    @rule(partitions=st.integers(0, 3), factor=st.integers(1, 5), name=TOPICS)
    def a_client_creates_a_topic(self, partitions: int, factor: int, name: str) -> None:
        topic = admin_pb2.NewTopic(name=name, num_partitions=partitions, replication_factor=factor)
        self.ask(create_topics=admin_pb2.CreateTopicsRequest(topics=[topic]))

    @rule(name=TOPICS)
    def a_client_deletes_a_topic(self, name: str) -> None:
        self.ask(delete_topics=admin_pb2.DeleteTopicsRequest(names=[name]))

    @rule(name=TOPICS, total=st.integers(0, 5))
    def a_client_adds_partitions(self, name: str, total: int) -> None:
        wanted = admin_pb2.NewPartitions(name=name, total_count=total)
        self.ask(create_partitions=admin_pb2.CreatePartitionsRequest(topics=[wanted]))

    @rule(name=TOPICS, value=st.sampled_from(["1", "2", "4", ""]))
    def a_client_alters_a_configuration(self, name: str, value: str) -> None:
        key = "min.insync.replicas"
        change = admin_pb2.AlterTopicConfig(name=name, set={key: value} if value else {}, clear=[] if value else [key])
        self.ask(alter_configs=admin_pb2.AlterConfigsRequest(topics=[change]))

    @precondition(lambda self: self.image.partitions)
    @rule(data=st.data(), ahead=st.integers(-1, 2))
    def a_leader_reports(self, data: st.DataObject, ahead: int) -> None:
        """Reports a leader; its node follows from the term, because a Raft term has one leader only."""
        partition = self.image.partitions[data.draw(st.sampled_from(sorted(self.image.partitions)))]
        term = max(1, partition.leader_epoch + ahead)
        node = partition.replicas[(term * 7 + partition.group) % len(partition.replicas)]
        report = peer_pb2.LeaderReport(group=partition.group, leader_epoch=term)
        self.ask(report_leaders=peer_pb2.ReportLeaders(node_id=node, broker_epoch=self.epoch(node), reports=[report]))

    @precondition(lambda self: any(p.leader >= 0 for p in self.image.partitions.values()))
    @rule(data=st.data(), keep=st.booleans())
    def a_leader_changes_the_isr(self, data: st.DataObject, keep: bool) -> None:
        led = sorted(group for group, partition in self.image.partitions.items() if partition.leader >= 0)
        partition = self.image.partitions[data.draw(st.sampled_from(led))]
        others = data.draw(st.sets(st.sampled_from(partition.replicas)))
        members = [peer_pb2.IsrMember(node_id=n, broker_epoch=self.epoch(n)) for n in others | {partition.leader}]
        change = peer_pb2.IsrChange(
            group=partition.group,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            isr=members,
        )
        body = peer_pb2.AlterIsr(node_id=partition.leader, broker_epoch=self.epoch(partition.leader), changes=[change])
        if keep:
            self.stale_changes.append(body)
        else:
            self.ask(alter_isr=body)

    @precondition(lambda self: self.stale_changes)
    @rule()
    def a_delayed_isr_change_arrives(self) -> None:
        self.ask(alter_isr=self.stale_changes.pop(0))

    @rule(node=NODES)
    def a_broker_wants_producer_ids(self, node: int) -> None:
        self.ask(allocate_producer_ids=peer_pb2.AllocateProducerIds(node_id=node, broker_epoch=self.epoch(node)))

    # -- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def i12_holds(self) -> None:
        for group, partition in self.image.partitions.items():
            isr = set(partition.isr)
            assert isr
            assert isr <= set(partition.replicas)
            assert len(set(partition.replicas)) == len(partition.replicas)
            assert partition.leader == -1 or partition.leader in isr
            fenced = {node for node in isr if self.image.is_fenced(node)}
            assert fenced <= {partition.leader} or len(isr) == 1
            epochs = (partition.leader_epoch, partition.partition_epoch)
            before = self.epochs_seen.get(group, (0, 0))
            assert before <= epochs
            assert before[1] <= epochs[1]
            self.epochs_seen[group] = epochs

    @invariant()
    def every_node_has_the_same_image(self) -> None:
        assert self.follower.to_snapshot() == self.image.to_snapshot()

    @invariant()
    def the_index_says_where_the_partitions_are(self) -> None:
        for image in (self.image, self.follower):
            partitions = image.partitions.values()
            for node in self.boots:
                hosted = {each.group for each in partitions if node in {*each.hosts, *each.returning}}
                assert image.replica_index.on(node) == hosted
                assert image.replica_index.wanted[node] == sum(node in each.intended_voters for each in partitions)
                assert image.replica_index.leaders[node] == sum(node == each.intended[0] for each in partitions)

    @invariant()
    def names_ids_and_groups_are_unique(self) -> None:
        topics = self.image.topics.values()
        assert {topic.topic_id for topic in topics} == set(self.image.topics_by_id)
        assert len({name.replace(".", "_") for name in self.image.topics}) == len(self.image.topics)
        groups = [partition.group for topic in topics for partition in topic.partitions]
        assert sorted(groups) == sorted(self.image.partitions)
        assert all(group < self.image.topic_table.next_group for group in groups)
        for group, partition in self.image.partitions.items():
            assert self.groups_seen.setdefault(group, partition.topic.topic_id) == partition.topic.topic_id
        for topic in topics:
            assert [partition.number for partition in topic.partitions] == list(range(len(topic.partitions)))
            assert int(topic.configs.get("min.insync.replicas", "1")) <= len(topic.partitions[0].replicas)

    @invariant()
    def what_was_deleted_is_told_from_what_is_not_known_yet(self) -> None:
        table = self.image.topic_table
        for group in self.groups_seen:
            assert table.was_deleted(group) == (group not in table.partitions)
        assert not table.was_deleted(table.next_group)
        assert not table.was_deleted(0)


TestMetadataMachine = pytest.mark.thorough(MetadataMachine.TestCase)
TestMetadataMachine.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
