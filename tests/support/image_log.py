"""A metadata image, and the entries that it is given one after the other."""

from __future__ import annotations

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import FEATURE_LEVEL, FIRST_PARTITION_GROUP, ApplyResult, PartitionRecord
from quorumlog.v1 import metadata_log_pb2 as log
from quorumlog.v1 import peer_pb2

GROUP = FIRST_PARTITION_GROUP


class ImageLog:
    """An image and the entries that it is given, one after the other."""

    def __init__(self) -> None:
        self.image = MetadataImage()

    def apply(self, command: log.MetadataCommand) -> ApplyResult:
        return self.image.apply(self.image.applied_index + 1, command)

    def register(self, node: int, *, directory: str = "", boot: int = 1, level: int = FEATURE_LEVEL) -> ApplyResult:
        body = peer_pb2.RegisterBroker(
            node_id=node,
            directory_id=directory or f"dir-{node}",
            boot_id=boot,
            host="127.0.0.1",
            port=19091 + node,
            feature_level=level,
        )
        return self.apply(log.MetadataCommand(register_broker=body))

    def epoch(self, node: int) -> int:
        return self.image.brokers[node].epoch

    def identity(self, node: int) -> log.BrokerIdentity:
        return log.BrokerIdentity(node_id=node, broker_epoch=self.epoch(node))

    def fence(self, *nodes: int) -> ApplyResult:
        body = log.FenceBrokers(brokers=[self.identity(node) for node in nodes])
        return self.apply(log.MetadataCommand(fence_brokers=body))

    def unfence(self, *nodes: int) -> ApplyResult:
        body = log.UnfenceBrokers(brokers=[self.identity(node) for node in nodes])
        return self.apply(log.MetadataCommand(unfence_brokers=body))

    def create(self, name: str, *replicas: tuple[int, ...]) -> ApplyResult:
        body = log.CreateTopic(
            name=name,
            topic_id=name.encode().ljust(16, b"\0"),
            configs={"retention.ms": "1", "cleanup.policy": "delete"},
            partitions=[log.ReplicaSet(replicas=nodes) for nodes in replicas],
        )
        return self.apply(log.MetadataCommand(create_topic=body))

    def report(
        self, node: int, leader_epoch: int, *, broker_epoch: int | None = None, group: int = GROUP
    ) -> ApplyResult:
        body = peer_pb2.ReportLeaders(
            node_id=node,
            broker_epoch=self.epoch(node) if broker_epoch is None else broker_epoch,
            reports=[peer_pb2.LeaderReport(group=group, leader_epoch=leader_epoch)],
        )
        return self.apply(log.MetadataCommand(report_leaders=body))

    def change(self, *isr: int, epoch: int | None = None, **epochs: int) -> peer_pb2.IsrChange:
        """A change of the ISR as the leader with this image would ask for it; single epochs may be set."""
        partition = self.partition
        return peer_pb2.IsrChange(
            group=GROUP,
            leader_epoch=epochs.get("leader_epoch", partition.leader_epoch),
            partition_epoch=partition.partition_epoch if epoch is None else epoch,
            isr=[
                peer_pb2.IsrMember(node_id=node, broker_epoch=epochs.get(f"broker_{node}", self.epoch(node)))
                for node in isr
            ],
        )

    def alter(self, node: int, change: peer_pb2.IsrChange) -> ApplyResult:
        body = peer_pb2.AlterIsr(node_id=node, broker_epoch=self.epoch(node), changes=[change])
        return self.apply(log.MetadataCommand(alter_isr=body))

    @property
    def partition(self) -> PartitionRecord:
        return self.image.partitions[GROUP]
