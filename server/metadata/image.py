"""The cluster's metadata on every node: the state machine of group 0.

Pure and deterministic: the same entries give the same image on every node, whatever their timing. Every rule that
decides between two requests is here and not in the controller, because only the log has recorded which came first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from google.protobuf.message import DecodeError

from quorumlog.raft.types import NO_NODE
from quorumlog.server.metadata.acls import AccessControlLists
from quorumlog.server.metadata.client_quotas import ClientQuotas
from quorumlog.server.metadata.credentials import Credentials
from quorumlog.server.metadata.departures import Departures
from quorumlog.server.metadata.lost_disks import LostDisks
from quorumlog.server.metadata.moves import PartitionMoves, reassigned
from quorumlog.server.metadata.node_settings import SettingsRecords
from quorumlog.server.metadata.producer_names import NamedProducers
from quorumlog.server.metadata.quorum import WantedQuorum
from quorumlog.server.metadata.records import (
    FEATURE_LEVEL,
    FIRST_FEATURE_LEVEL,
    PRODUCER_ID_BLOCK,
    ApplyResult,
    BrokerRecord,
    PartitionRecord,
    broker_of,
    broker_record,
    copy_of,
    topic_of,
    topic_record,
)
from quorumlog.server.metadata.topic_table import TopicTable
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Commands that change neither the set of nodes, nor which of them are up, nor the placement of partitions.
_LEAVES_LAYOUT = frozenset(
    (
        "report_leaders",
        "alter_isr",
        "allocate_producer_ids",
        "change_topic_config",
        "claim_producer",
        "delete_producers",
        "delete_producer_claims",
        "want_quorum",
        "acls_created",
        "acls_deleted",
        "users_altered",
        "revocations_altered",
        "client_quotas_altered",
        "node_settings_altered",
    )
)


class MetadataLogError(Exception):
    """Raised for an entry of the metadata log that this version cannot apply. The node must stop: skipping it would
    diverge."""


class CurrentImage(Protocol):
    """Access to the newest image.

    A snapshot replaces the image as a whole, so an image that is kept elsewhere becomes stale.
    """

    @property
    def image(self) -> MetadataImage:
        """The current image."""


class MetadataImage:
    """Brokers, topics and partitions as of ``applied_index``.

    Attributes:
        replica_index: the partitions of each node.
        layout_version: grows when nodes join, leave, fail or return, or partitions are created, deleted or moved.
            Results computed over all of them stay valid until then.
        membership_version: grows when nodes join or are removed, and when their disks are given up or replaced.
        former_cluster_ids: the cluster's ids before each recovery from the loss of a majority.
    """

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerRecord] = {}
        self.topic_table = TopicTable(self.is_fenced, self._refuse_replicas)
        self.topics = self.topic_table.by_name
        self.topics_by_id = self.topic_table.by_id
        self.partitions = self.topic_table.partitions
        self.replica_index = self.topic_table.index
        self.moves = PartitionMoves(self.partitions, self.replica_index)
        self.departures = Departures(self.brokers, self.partitions, self.replica_index)
        self.lost_disks = LostDisks(self.brokers, self.partitions)
        self.applied_index = 0
        self.layout_version = 0
        self.membership_version = 0
        self.next_producer_id = 0
        self.named_producers = NamedProducers()
        self.quorum = WantedQuorum()
        self.acls = AccessControlLists()
        self.credentials = Credentials()
        self.client_quotas = ClientQuotas()
        self.node_settings = SettingsRecords()
        self.feature_level = FIRST_FEATURE_LEVEL
        self.former_cluster_ids: tuple[str, ...] = ()

    # -- reading --------------------------------------------------------------------------------------------------

    def is_fenced(self, node_id: int) -> bool:
        """True if a node counts as gone: fenced, or never registered."""
        broker = self.brokers.get(node_id)
        return broker is None or broker.fenced

    def available_leader(self, partition: PartitionRecord) -> int:
        """Returns the partition's leader for clients, or NO_NODE if it has none or the leader counts as gone."""
        return NO_NODE if self.is_fenced(partition.leader) else partition.leader

    def _refuse_replicas(self, nodes: Iterable[int]) -> errors_pb2.Error | None:
        return self.departures.refuse_replicas(nodes)

    # -- applying -------------------------------------------------------------------------------------------------

    def advance(self, index: int) -> None:
        """Marks an entry without a command (a leader's no-op, a configuration) as applied."""
        assert index > self.applied_index, f"entry {index} comes after {self.applied_index}"
        self.applied_index = index

    def apply(self, index: int, command: metadata_log_pb2.MetadataCommand) -> ApplyResult:
        """Applies one committed entry.

        A command that no longer fits the image changes nothing, and the response says why.

        Arguments:
            index: of the entry; each is applied once, in order.

        Raises:
            MetadataLogError: the command belongs to a later version.
        """
        self.advance(index)
        kind = command.WhichOneof("body")
        if kind not in _LEAVES_LAYOUT:
            self.layout_version += 1
        match kind:
            case "register_broker":
                result = self._register(index, command.register_broker)
            case "fence_brokers":
                result = self._fence(command.fence_brokers)
            case "unfence_brokers":
                result = self._unfence(command.unfence_brokers)
            case "create_topic":
                result = self.topic_table.create(command.create_topic)
            case "report_leaders":
                result = self._report_leaders(command.report_leaders)
            case "alter_isr":
                result = self._alter_isr(command.alter_isr)
            case "allocate_producer_ids":
                result = self._allocate_producer_ids(command.allocate_producer_ids)
            case "delete_topic":
                result = self.topic_table.delete(command.delete_topic)
            case "add_partitions":
                result = self.topic_table.add_partitions(command.add_partitions)
            case "change_topic_config":
                result = self.topic_table.change_config(command.change_topic_config)
            case "reassign_replicas":
                result = self._reassign(command.reassign_replicas)
            case "replicas_moved":
                result = self._replicas_moved(command.replicas_moved)
            case "claim_producer":
                result = ApplyResult(self.named_producers.claim(command.claim_producer, command.timestamp_ms))
            case "delete_producers" | "delete_producer_claims":
                result = ApplyResult(self.named_producers.delete(index, getattr(command, kind)))
            case "restore_producer_names":
                result = self._restore_producers(command.restore_producer_names)
            case "want_quorum":
                result = self._want_quorum(command.want_quorum)
            case "want_node":
                result = self.departures.want(command.want_node)
            case "remove_node":
                result = self._remove_node(index, command.remove_node)
            case "replace_disk":
                result = self.lost_disks.replace(index, command.replace_disk, self.quorum.voters)
                self.membership_version += 1
            case "acls_created":
                result = ApplyResult(self.acls.create(index, command.acls_created))
            case "acls_deleted":
                result = ApplyResult(self.acls.delete(index, command.acls_deleted))
            case "users_altered":
                altered = self.credentials.alter_users(index, command.timestamp_ms, command.users_altered)
                result = ApplyResult(altered)
            case "revocations_altered":
                altered = self.credentials.alter_revocations(index, command.timestamp_ms, command.revocations_altered)
                result = ApplyResult(altered)
            case "client_quotas_altered":
                result = ApplyResult(self.client_quotas.alter(index, command.client_quotas_altered))
            case "node_settings_altered":
                altered = self.node_settings.alter(index, command.node_settings_altered, self.brokers)
                result = ApplyResult(altered)
            case "raise_feature_level":
                result = self._raise_feature_level(index, command.raise_feature_level.level)
            case _:
                raise MetadataLogError(
                    f"entry {index} of the metadata log holds a command of a later version: upgrade this node"
                )
        for group in result.changed_groups:
            self._check(self.partitions[group])
        return result

    def _check(self, partition: PartitionRecord) -> None:
        assert partition.isr, partition
        assert set(partition.isr) <= set(partition.hosts) - partition.witness_hosts, partition
        if partition.leader == NO_NODE:
            assert partition.leader_epoch == 0, partition
        else:
            assert partition.leader in partition.isr, partition
            assert partition.leader_epoch > 0, partition
        if len(partition.isr) > 1:
            assert not any(node != partition.leader and self.is_fenced(node) for node in partition.isr), partition

    # -- brokers --------------------------------------------------------------------------------------------------

    def check_registration(self, registration: peer_pb2.RegisterBroker) -> errors_pb2.Error | None:
        """Returns the error if a broker may not register, or None."""
        removed = self.departures.refuse_removed(registration.node_id)
        if removed is not None:
            return removed
        node, directory = registration.node_id, registration.directory_id
        lost = self.lost_disks.refuse(node, directory)
        if lost is not None:
            return error(ErrorCode.DUPLICATE_BROKER_REGISTRATION, lost)
        known = self.brokers.get(node)
        if known is not None and known.registration.directory_id != directory and not known.is_vacant:
            return error(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"node {node} is registered with data directory {known.registration.directory_id}, not {directory}:"
                " start it on its own directory, or give this node another id",
            )
        if registration.feature_level < self.feature_level:
            return error(
                ErrorCode.UNSUPPORTED_VERSION,
                f"the cluster is at feature level {self.feature_level}, node {registration.node_id} supports"
                f" {registration.feature_level}: upgrade the node",
            )
        return None

    def _register(self, index: int, registration: peer_pb2.RegisterBroker) -> ApplyResult:
        refused = self.check_registration(registration)
        if refused is not None:
            return ApplyResult(peer_pb2.ControllerResponse(error=refused))
        known = self.brokers.get(registration.node_id)
        if known is not None and known.registration == registration:
            # The same process repeats its request because the answer was lost. A new epoch would invalidate the answers
            # that it already has, and it would have to register again.
            return _registered(known.epoch, changed=False)
        same_process = known is not None and known.registration.boot_id == registration.boot_id
        fenced = known.fenced if known is not None and same_process else True
        broker = BrokerRecord(copy_of(registration), index, fenced)
        if known is not None:
            broker.leaving, broker.successor, broker.throttle = known.leaving, known.successor, known.throttle
        if known is None or known.is_lost:
            self.membership_version += 1
        self.brokers[registration.node_id] = broker
        result = _registered(index, changed=True)
        if fenced:
            # The in-memory state of the former process is lost: the node must catch up before it counts again.
            result.changed_groups = self._leave_isrs({registration.node_id})
        return result

    def _want_quorum(self, command: metadata_log_pb2.WantQuorum) -> ApplyResult:
        wishes = self.quorum.wishes
        result = self.quorum.want(command, self.brokers)
        if self.quorum.wishes != wishes:
            self.lost_disks.has_voters(self.quorum.voters, replaces_disk=command.replaces_disk)
        return result

    def _remove_node(self, index: int, command: metadata_log_pb2.RemoveNode) -> ApplyResult:
        result = self.departures.remove(command, self.quorum)
        self.membership_version += 1
        if command.node_id not in self.brokers:
            self.node_settings.forget(index, command.node_id)
        return result

    def _fence(self, command: metadata_log_pb2.FenceBrokers) -> ApplyResult:
        fenced = self._switch(command.brokers, fenced=True)
        changed = self._leave_isrs(fenced)
        return ApplyResult(peer_pb2.ControllerResponse(), changed_groups=changed, brokers_changed=bool(fenced))

    def _unfence(self, command: metadata_log_pb2.UnfenceBrokers) -> ApplyResult:
        unfenced = self._switch(command.brokers, fenced=False)
        return ApplyResult(peer_pb2.ControllerResponse(), brokers_changed=bool(unfenced))

    def _switch(self, identities: Iterable[metadata_log_pb2.BrokerIdentity], *, fenced: bool) -> set[int]:
        """Fences or unfences the brokers whose epoch still matches; returns those that changed."""
        changed: set[int] = set()
        for identity in identities:
            broker = self.brokers.get(identity.node_id)
            if broker is not None and broker.epoch == identity.broker_epoch and broker.fenced is not fenced:
                broker.fenced = fenced
                changed.add(identity.node_id)
        return changed

    def _leave_isrs(self, nodes: set[int]) -> set[int]:
        """Removes fenced nodes from every ISR that has another member, except where they lead.

        A leader that was removed before its successor reported would leave a partition whose leader is not in sync; it
        is removed with its successor's report.
        """
        changed: set[int] = set()
        if not nodes:
            return changed
        for partition in self.partitions.values():
            if nodes.isdisjoint(partition.isr):
                continue
            isr = tuple(node for node in partition.isr if node == partition.leader or node not in nodes)
            isr = isr or partition.isr[:1]
            if isr != partition.isr:
                partition.isr = isr
                partition.partition_epoch += 1
                changed.add(partition.group)
        return changed

    # -- partitions -----------------------------------------------------------------------------------------------

    def check_epoch(self, node_id: int, broker_epoch: int) -> errors_pb2.Error | None:
        """Returns the error for a broker that is unknown, or whose node has registered again since, or None."""
        broker = self.brokers.get(node_id)
        if broker is not None and broker.epoch == broker_epoch:
            return None
        now = f"epoch {broker.epoch}" if broker is not None else "not registered"
        return error(
            ErrorCode.STALE_BROKER_EPOCH,
            f"node {node_id} speaks as broker epoch {broker_epoch} but is {now}: register again",
        )

    def check_report(self, node_id: int, report: peer_pb2.LeaderReport) -> errors_pb2.Error | None:
        """Returns the error for a leader's report that is invalid or outdated, or None."""
        partition = self.partitions.get(report.group)
        if partition is None:
            return _unknown_group(report.group)
        if node_id not in partition.hosts:
            return error(
                ErrorCode.INVALID_REQUEST,
                f"node {node_id} says that it leads {partition.name}, of which it has no replica",
            )
        same = report.leader_epoch == partition.leader_epoch and node_id == partition.leader
        if report.leader_epoch <= partition.leader_epoch and not same:
            return _fenced_epoch(partition, report.leader_epoch)
        return None

    def is_known_report(self, node_id: int, report: peer_pb2.LeaderReport) -> bool:
        """True if the image already contains the report."""
        partition = self.partitions.get(report.group)
        return partition is not None and (partition.leader, partition.leader_epoch) == (node_id, report.leader_epoch)

    def _report_leaders(self, command: peer_pb2.ReportLeaders) -> ApplyResult:
        refused = self.check_epoch(command.node_id, command.broker_epoch)
        if refused is not None:
            return ApplyResult(peer_pb2.ControllerResponse(error=refused))
        result = ApplyResult(peer_pb2.ControllerResponse(partition_changes=peer_pb2.PartitionChangesResponse()))
        for report in command.reports:
            refused = self.check_report(command.node_id, report)
            if refused is None and not self.is_known_report(command.node_id, report):
                self._set_leader(self.partitions[report.group], command.node_id, report.leader_epoch)
                result.changed_groups.add(report.group)
            self._add_outcome(result, report.group, refused)
        return result

    def _set_leader(self, partition: PartitionRecord, leader: int, leader_epoch: int) -> None:
        """Sets leader and ISR in one change: otherwise a reader would see a leader that is not in sync.

        The ISR gains the new leader and loses the old one if that is fenced.
        """
        assert leader_epoch > partition.leader_epoch
        partition.leader = leader
        partition.leader_epoch = leader_epoch
        members = {node for node in partition.isr if not self.is_fenced(node)}
        partition.isr = partition.ordered(members | {leader})
        partition.partition_epoch += 1

    def check_isr_change(self, node_id: int, change: peer_pb2.IsrChange) -> errors_pb2.Error | None:
        """Returns the error for a leader's change of the ISR that is invalid or outdated, or None.

        A compare-and-set on leader epoch, partition epoch and the broker epoch of each added member: a delayed shrink
        must not undo an expansion, and a restarted broker must not rejoin on the state of its former process.
        """
        partition = self.partitions.get(change.group)
        if partition is None:
            return _unknown_group(change.group)
        if change.leader_epoch < partition.leader_epoch:
            return _fenced_epoch(partition, change.leader_epoch)
        if change.leader_epoch > partition.leader_epoch:
            return error(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"leader epoch {change.leader_epoch} of {partition.name} has not been reported: report it first",
            )
        if node_id != partition.leader:
            return error(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"node {node_id} does not lead {partition.name}",
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
            )
        if change.partition_epoch != partition.partition_epoch:
            return error(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"{partition.name} is at partition epoch {partition.partition_epoch}, the change is based on"
                f" {change.partition_epoch}: look again",
            )
        return self._check_members(partition, change)

    def _check_members(self, partition: PartitionRecord, change: peer_pb2.IsrChange) -> errors_pb2.Error | None:
        members = [member.node_id for member in change.isr]
        if len(set(members)) != len(members) or not set(members) <= set(partition.hosts) - partition.witness_hosts:
            return error(
                ErrorCode.INVALID_REQUEST,
                f"ISR {members} of {partition.name} is not a set of its replicas {list(partition.hosts)}",
            )
        if partition.leader not in members:
            return error(
                ErrorCode.INVALID_REQUEST, f"ISR {members} of {partition.name} lacks its leader {partition.leader}"
            )
        for member in change.isr:
            if member.node_id in partition.isr:
                continue
            broker = self.brokers.get(member.node_id)
            if broker is None or broker.fenced or broker.epoch != member.broker_epoch:
                state = "not registered" if broker is None else "fenced" if broker.fenced else f"epoch {broker.epoch}"
                return error(
                    ErrorCode.INELIGIBLE_REPLICA,
                    f"node {member.node_id}, broker epoch {member.broker_epoch}, may not join the ISR of"
                    f" {partition.name}: it is {state}",
                )
        return None

    def _alter_isr(self, command: peer_pb2.AlterIsr) -> ApplyResult:
        refused = self.check_epoch(command.node_id, command.broker_epoch)
        if refused is not None:
            return ApplyResult(peer_pb2.ControllerResponse(error=refused))
        result = ApplyResult(peer_pb2.ControllerResponse(partition_changes=peer_pb2.PartitionChangesResponse()))
        for change in command.changes:
            refused = self.check_isr_change(command.node_id, change)
            if refused is None:
                partition = self.partitions[change.group]
                isr = partition.ordered(member.node_id for member in change.isr)
                if isr != partition.isr:
                    partition.isr = isr
                    partition.partition_epoch += 1
                    result.changed_groups.add(change.group)
            self._add_outcome(result, change.group, refused)
        return result

    def _add_outcome(self, result: ApplyResult, group: int, refused: errors_pb2.Error | None) -> None:
        result.response.partition_changes.results.append(self.change_result(group, refused))

    def change_result(self, group: int, refused: errors_pb2.Error | None) -> peer_pb2.PartitionChangeResult:
        """Returns the outcome of one report or change of a partition, with the partition's current epoch."""
        partition = self.partitions.get(group)
        return peer_pb2.PartitionChangeResult(
            group=group, error=refused, partition_epoch=partition.partition_epoch if partition is not None else 0
        )

    def _reassign(self, command: metadata_log_pb2.ReassignReplicas) -> ApplyResult:
        if command.HasField("leaving_node"):
            broker = self.brokers.get(command.leaving_node)
            if broker is None or not broker.leaving:
                problem = f"node {command.leaving_node} no longer has to be emptied"
                return ApplyResult(reassigned(None, error(ErrorCode.INVALID_UPDATE_VERSION, problem)))
        gone = self.departures.refuse_replicas(command.replicas)
        if gone is not None:
            return ApplyResult(reassigned(self.partitions.get(command.group), gone))
        if command.HasField("lost_node"):
            broker = self.brokers.get(command.lost_node)
            if broker is None or not broker.is_lost:
                problem = f"the disk of node {command.lost_node} counts again"
                return ApplyResult(reassigned(None, error(ErrorCode.INVALID_UPDATE_VERSION, problem)))
        return self.moves.reassign(command)

    def _replicas_moved(self, moved: peer_pb2.ReplicasMoved) -> ApplyResult:
        refused = self.check_epoch(moved.node_id, moved.broker_epoch)
        if refused is not None:
            return ApplyResult(peer_pb2.ControllerResponse(error=refused))
        return self.moves.finish(moved)

    def _allocate_producer_ids(self, command: peer_pb2.AllocateProducerIds) -> ApplyResult:
        refused = self.check_epoch(command.node_id, command.broker_epoch)
        if refused is not None:
            return ApplyResult(peer_pb2.ControllerResponse(error=refused))
        block = peer_pb2.ProducerIdBlock(first_id=self.next_producer_id, count=PRODUCER_ID_BLOCK)
        self.next_producer_id += PRODUCER_ID_BLOCK
        return ApplyResult(peer_pb2.ControllerResponse(producer_id_block=block))

    # -- the feature level ----------------------------------------------------------------------------------------

    def supports(self, level: int) -> bool:
        """True if the cluster may be raised to a feature level: some node is up, and every node supports the level
        that is up, or has replicas and may return with them."""
        older = set(self.older_nodes(level))
        if not all(self.is_fenced(node) for node in older) or all(broker.fenced for broker in self.brokers.values()):
            return False
        return not any(self.replica_index.on(node) for node in older)

    def older_nodes(self, level: int) -> list[int]:
        """Returns the registered nodes that do not support a feature level."""
        return sorted(node for node, broker in self.brokers.items() if broker.registration.feature_level < level)

    def _restore_producers(self, command: admin_pb2.RestoreProducerNamesRequest) -> ApplyResult:
        """Restores names from a backup; ids that were assigned there are not assigned again."""
        refused = self.named_producers.restore(command.producers, command.next_named_producer_id)
        if refused is None:
            self.next_producer_id = max(self.next_producer_id, command.next_producer_id)
        response = admin_pb2.RestoreProducerNamesResponse(error=refused)
        return ApplyResult(peer_pb2.ControllerResponse(restore_producer_names=response))

    def _raise_feature_level(self, index: int, level: int) -> ApplyResult:
        if level > FEATURE_LEVEL:
            raise MetadataLogError(_too_old(f"entry {index} of the metadata log", level))
        # Only the log shows whether a node that does not support it has registered in the meantime.
        if level > self.feature_level and self.supports(level):
            self.feature_level = level
        reached = admin_pb2.UpgradeFeaturesResponse(feature_level=self.feature_level)
        if self.feature_level < level:
            problem = f"nodes {', '.join(map(str, self.older_nodes(level)))} do not support feature level {level}"
            reached.error.CopyFrom(error(ErrorCode.UNSUPPORTED_VERSION, problem))
        return ApplyResult(peer_pb2.ControllerResponse(upgrade_features=reached))

    # -- snapshots ------------------------------------------------------------------------------------------------

    def to_snapshot(self) -> bytes:
        """Returns the whole image; equal images give equal bytes."""
        snapshot = metadata_log_pb2.MetadataSnapshot(
            brokers=[broker_record(broker) for _, broker in sorted(self.brokers.items())],
            topics=[topic_record(topic) for topic in self.topics.values()],
            next_group=self.topic_table.next_group,
            next_producer_id=self.next_producer_id,
            named_producers=self.named_producers.records(),
            next_named_producer_id=self.named_producers.next_id,
            producers_deleted_index=self.named_producers.deleted_index,
            wanted_voters=self.quorum.voters,
            quorum_wishes=self.quorum.wishes,
            removed_nodes=[
                metadata_log_pb2.RemovedNode(node_id=node, directory_id=directory)
                for node, directory in sorted(self.departures.removed.items())
            ],
            lost_disks=self.lost_disks.records(),
            former_cluster_ids=self.former_cluster_ids,
            acls=self.acls.records(),
            acls_index=self.acls.index,
            users=self.credentials.user_records(),
            user_salt_key=self.credentials.salt_key,
            revocations=self.credentials.revocations,
            credentials_index=self.credentials.index,
            client_quotas=self.client_quotas.shown(),
            client_quotas_index=self.client_quotas.index,
            node_settings=self.node_settings.shown(),
            node_settings_index=self.node_settings.index,
            feature_level=self.feature_level,
            applied_index=self.applied_index,
        )
        return snapshot.SerializeToString(deterministic=True)

    @classmethod
    def from_snapshot(cls, data: bytes) -> MetadataImage:
        """Returns the image that ``to_snapshot`` wrote.

        Raises:
            MetadataLogError: the bytes are not a valid snapshot.
        """
        image = cls()
        try:
            image._fill(data)
        except DecodeError as problem:
            raise MetadataLogError(f"the metadata snapshot cannot be read: {problem}") from None
        if image.feature_level > FEATURE_LEVEL:
            raise MetadataLogError(_too_old("the metadata snapshot", image.feature_level))
        for partition in image.partitions.values():
            image._check(partition)
        return image

    def _fill(self, data: bytes) -> None:
        """Fills an empty image from a snapshot.

        Raises:
            DecodeError: the bytes are not a snapshot.
        """
        snapshot = metadata_log_pb2.MetadataSnapshot()
        snapshot.ParseFromString(data)
        for record in snapshot.brokers:
            self.brokers[record.registration.node_id] = broker_of(record)
        for row in snapshot.topics:
            self.topic_table.add(topic_of(row))
        self.moves.restored()
        self.departures.restored({each.node_id: each.directory_id for each in snapshot.removed_nodes})
        self.lost_disks.restored(snapshot.lost_disks)
        self.topic_table.next_group = snapshot.next_group
        self.next_producer_id = snapshot.next_producer_id
        self.named_producers = NamedProducers.from_snapshot(snapshot)
        self.quorum = WantedQuorum(tuple(snapshot.wanted_voters), snapshot.quorum_wishes)
        self.acls = AccessControlLists.from_snapshot(snapshot)
        self.credentials = Credentials.from_snapshot(snapshot)
        self.client_quotas = ClientQuotas.from_snapshot(snapshot)
        self.node_settings = SettingsRecords.from_snapshot(snapshot)
        self.feature_level = snapshot.feature_level
        self.applied_index = snapshot.applied_index
        self.former_cluster_ids = tuple(snapshot.former_cluster_ids)


def _too_old(what: str, level: int) -> str:
    return f"{what} is of feature level {level}, this version supports {FEATURE_LEVEL}: upgrade this node"


def _registered(epoch: int, *, changed: bool) -> ApplyResult:
    answer = peer_pb2.ControllerResponse(broker_registered=peer_pb2.BrokerRegistered(broker_epoch=epoch))
    return ApplyResult(answer, brokers_changed=changed)


def _unknown_group(group: int) -> errors_pb2.Error:
    return error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition with group {group}")


def _fenced_epoch(partition: PartitionRecord, leader_epoch: int) -> errors_pb2.Error:
    return error(
        ErrorCode.FENCED_LEADER_EPOCH,
        f"leader epoch {leader_epoch} of {partition.name} is over: node {partition.leader} leads in epoch"
        f" {partition.leader_epoch}",
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
    )
