"""The cluster's feature level rises automatically once no node is left that would misread its new commands."""

from __future__ import annotations

from dataclasses import replace

from test_controller import SECOND, Cluster, new_topic, registration

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import FEATURE_LEVEL, FIRST_FEATURE_LEVEL, SECOND_FEATURE_LEVEL
from quorumlog.v1 import admin_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

OLD = FIRST_FEATURE_LEVEL


class Upgrading(Cluster):
    """A cluster of nodes of the former version, of which some are upgraded. Node 4 has no replicas."""

    def __init__(self, *upgraded: int, automatic: bool = True) -> None:
        super().__init__(nodes=0)
        self.options = replace(self.options, raises_features=automatic)
        self.take_over()
        for node in (1, 2, 3):
            self.ask(register_broker=registration(node, feature_level=OLD))
        self.settle(1, 2, 3)
        self.create(new_topic())
        self.upgrade(4, level=OLD)
        for node in upgraded:
            self.upgrade(node)

    def upgrade(self, node: int, level: int = FEATURE_LEVEL) -> None:
        """Restarts the node with this feature level."""
        self.ask(register_broker=registration(node, boot=level + 1, feature_level=level))
        self.settle(*self.image.brokers)

    def settle(self, *nodes: int) -> None:
        for _ in range(2):
            self.beat(*nodes)
            self.run_until(self.now)

    def lost(self, *nodes: int) -> None:
        left = tuple(node for node in self.image.brokers if node not in nodes)
        self.run_until(self.now + 4 * SECOND, beating=left)
        assert self.fenced() == list(nodes)


def test_the_level_rises_with_the_last_node_that_is_upgraded() -> None:
    cluster = Upgrading(1, 2, 3)
    assert cluster.image.feature_level == OLD
    cluster.upgrade(4)
    assert cluster.image.feature_level == FEATURE_LEVEL
    assert MetadataImage.from_snapshot(cluster.image.to_snapshot()).feature_level == FEATURE_LEVEL
    refused = cluster.ask(register_broker=registration(5, feature_level=OLD))
    assert refused.error.code == ErrorCode.UNSUPPORTED_VERSION


def test_a_cluster_of_one_node_rises_too() -> None:
    assert Cluster(nodes=1).image.feature_level == FEATURE_LEVEL


def test_who_comes_before_a_new_cluster_has_risen_is_told_to_try_again() -> None:
    cluster = Cluster(nodes=0)
    cluster.take_over()
    cluster.ask(register_broker=registration(1))
    assert cluster.image.feature_level == OLD, "no node is up yet"
    names = admin_pb2.RestoreProducerNamesRequest()
    assert cluster.ask(restore_producer_names=names).error.code == ErrorCode.SERVER_BUSY
    for _ in range(2):
        cluster.beat(1)
        cluster.run_until(cluster.now)
    assert not cluster.ask(restore_producer_names=names).HasField("error")


def test_level_rises_to_what_all_nodes_support() -> None:
    """A node of a version in between holds back only the levels that it does not support."""
    cluster = Upgrading(2, 3, 4)
    cluster.upgrade(1, level=SECOND_FEATURE_LEVEL)
    assert cluster.image.feature_level == SECOND_FEATURE_LEVEL
    cluster.upgrade(1)
    assert cluster.image.feature_level == FEATURE_LEVEL


def test_an_older_node_that_is_down_holds_the_level_back_while_it_has_replicas() -> None:
    cluster = Upgrading(1, 2, 4)
    cluster.lost(3)
    cluster.settle(1, 2, 4)
    assert cluster.image.feature_level == OLD, "it may return with them"
    cluster = Upgrading(1, 2, 3)
    cluster.lost(4)
    cluster.settle(1, 2, 3)
    assert cluster.image.feature_level == FEATURE_LEVEL, "it was taken away"


def test_an_older_node_that_registers_before_the_level_has_risen_holds_it_back() -> None:
    cluster = Upgrading(1, 2, 3)
    cluster.lost(4)
    cluster.image.feature_level = OLD
    raising = cluster.decide(heartbeat=cluster.heartbeat(1))
    assert [command.WhichOneof("body") for command in raising.commands] == ["raise_feature_level"]
    cluster.ask(register_broker=registration(4, boot=9, feature_level=OLD))
    again = metadata_log_pb2.BrokerIdentity(node_id=4, broker_epoch=cluster.epoch(4))
    cluster.commit_one(unfence_brokers=metadata_log_pb2.UnfenceBrokers(brokers=[again]))
    assert not cluster.commit(raising).heartbeat.fenced
    assert cluster.image.feature_level == OLD


def test_claims_are_not_deleted_while_a_node_would_misread_that() -> None:
    cluster = Upgrading(1, 2, 3)
    made = cluster.ask(claim_producer=peer_pb2.ClaimProducer(name="etl", epoch=-1, known_epoch=-1)).producer_claimed
    claimed = admin_pb2.ProducerClaim(producer_id=made.producer_id, producer_epoch=made.producer_epoch)
    request = admin_pb2.DeleteProducersRequest(names=["etl"], claims=[claimed])
    decision = cluster.decide(delete_producers=request)
    assert decision.commands == ()
    refused = cluster.commit(decision).error
    assert refused.code == ErrorCode.UNSUPPORTED_VERSION
    assert "upgrade all nodes (older: 4)" in refused.message
    cluster.upgrade(4)
    assert cluster.ask(delete_producers=request).delete_producers.results[0].error.code == ErrorCode.NONE


def test_the_metadata_quorum_is_not_changed_while_an_older_node_would_stop_at_that() -> None:
    cluster = Upgrading(1, 2, 3)
    answer = cluster.ask(alter_quorum=admin_pb2.AlterQuorumRequest(add=[4]))
    assert answer.error.code == ErrorCode.UNSUPPORTED_VERSION
    assert "(older: 4)" in answer.error.message
    cluster.upgrade(4)
    assert list(cluster.ask(alter_quorum=admin_pb2.AlterQuorumRequest(add=[4])).alter_quorum.voters) == [1, 2, 3, 4]


def test_told_to_wait_the_level_rises_when_an_operator_says_so_and_not_before() -> None:
    cluster = Upgrading(1, 2, 3, automatic=False)
    request, check = admin_pb2.UpgradeFeaturesRequest(), admin_pb2.UpgradeFeaturesRequest(validate_only=True)
    refused = cluster.ask(upgrade_features=request).error
    assert refused.code == ErrorCode.UNSUPPORTED_VERSION
    assert refused.message == "nodes 4 are of a version that does not support feature level 2: upgrade them"
    cluster.upgrade(4)
    assert cluster.image.feature_level == OLD, "the way back is open"
    assert cluster.ask(upgrade_features=check).upgrade_features.feature_level == FEATURE_LEVEL
    assert cluster.image.feature_level == OLD, "it was a question"
    assert cluster.ask(upgrade_features=request).upgrade_features.feature_level == FEATURE_LEVEL
    assert cluster.image.feature_level == FEATURE_LEVEL
    again = cluster.decide(upgrade_features=request)
    assert again.commands == () and cluster.commit(again).upgrade_features.feature_level == FEATURE_LEVEL


def test_an_older_node_that_registers_first_is_named_to_the_operator() -> None:
    cluster = Upgrading(1, 2, 3, automatic=False)
    cluster.lost(4)
    raising = cluster.decide(upgrade_features=admin_pb2.UpgradeFeaturesRequest())
    cluster.ask(register_broker=registration(4, boot=9, feature_level=OLD))
    again = metadata_log_pb2.BrokerIdentity(node_id=4, broker_epoch=cluster.epoch(4))
    cluster.commit_one(unfence_brokers=metadata_log_pb2.UnfenceBrokers(brokers=[again]))
    answer = cluster.commit(raising).upgrade_features
    assert answer.feature_level == OLD
    assert answer.error.message == "nodes 4 do not support feature level 3"


def test_heartbeats_ask_all_nodes_only_after_something_has_changed() -> None:
    cluster = Upgrading(1)
    count = 0
    supports = cluster.image.supports

    def counted(level: int) -> bool:
        nonlocal count
        count += 1
        return supports(level)

    cluster.image.supports = counted  # type: ignore[method-assign]
    for _ in range(50):
        cluster.beat(1, 2, 3, 4)
    assert count <= 1
    for node in (2, 3, 4):
        cluster.upgrade(node)
    assert cluster.image.feature_level == FEATURE_LEVEL
