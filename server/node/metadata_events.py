"""Reactions of a node to changes of its metadata replica."""

from __future__ import annotations

from quorumlog.raft.types import NO_NODE
from quorumlog.server.metadata.records import ApplyResult
from quorumlog.server.node.cluster_events import ClusterEvents
from quorumlog.server.node.member_context import MemberContext
from quorumlog.server.node.member_services import MemberServices
from quorumlog.server.node.settings_in_effect import SettingsInEffect


class MetadataEvents:
    """Notifies the parts of a cluster member in a fixed order, so that a repeated simulation takes the same steps."""

    def __init__(
        self, context: MemberContext, services: MemberServices, journal: ClusterEvents, settings: SettingsInEffect
    ) -> None:
        self._settings = settings
        self._controller_log = context.resources.log.named("server.controller")
        self._context = context
        self._replica = context.metadata.replica
        self._services = services
        self._journal = journal
        self._known_controller = NO_NODE
        self._known_level = 0
        self._known_rights = self._replica.image.acls.index

    def after_round(self) -> None:
        """Handles a step of the metadata's Raft group."""
        services, now, raft = self._services, self._context.time.now, self._replica.raft
        self._context.metadata.after_round(now)
        if raft.leader_id != self._known_controller:
            self._controller_changed(raft.leader_id, raft.term)
        services.cluster.reads.after_round()
        self._context.image_age.after_round()
        services.groups.metadata_changed()
        services.transactions.metadata_changed()
        self._follow_rights(now)
        # Once for all commands of a round: a node that restarts must not repeat every change since its last checkpoint.
        self._settings.follow()
        services.replicas.endings.leave(now)
        services.logs.deleted_producers.metadata_changed(now)
        self._context.metadata.checkpoint()

    def _controller_changed(self, leader_id: int, term: int) -> None:
        self._known_controller = leader_id
        self._services.cluster.watches.controller_changed()
        if leader_id == NO_NODE:
            self._context.resources.log("warning", "metadata_leader_lost", term=term)
        else:
            self._context.resources.log("info", "metadata_leader", leader=leader_id, term=term)
        self._services.replicas.broker.controller_changed(self._context.time.now)

    def _follow_rights(self, now: int) -> None:
        """Ends operations that clients may no longer perform, if ACLs, users or quotas have changed."""
        services, rights = self._services, self._replica.image.acls.index
        if rights != self._known_rights:
            self._known_rights = rights
            services.logs.fetches.rights_changed(now)
            services.groups.rights_changed()
        if services.cluster.watches.is_watched:
            services.cluster.watches.rights_may_have_changed()
        services.access.admission.metadata_changed()
        services.pipeline.throttle.metadata_changed()

    def metadata_applied(self, result: ApplyResult) -> None:
        """Handles a command that was applied to the image."""
        image, now, replicas = self._replica.image, self._context.time.now, self._services.replicas
        if image.feature_level != self._known_level:
            self._known_level = image.feature_level
            self._context.resources.log("info", "feature_level", feature_level=image.feature_level)
        if self._controller_log.debugs:
            self._controller_log(
                "debug", "metadata_applied", index=image.applied_index, partitions=len(result.changed_groups)
            )
        self._journal.applied(image, result, is_controller=self._replica.controller is not None)
        if self._services.cluster.watches.is_watched:
            self._services.cluster.watches.metadata_applied(result)
        for topic in result.deleted:
            replicas.endings.deleted(record.group for record in topic.partitions)
            for record in topic.partitions:
                self._context.metadata.follow_group(record.group, replicas.partitions.get(record.group))
        for group in sorted(result.changed_groups):
            replicas.partitions.ensure(now, group)
            replicas.partitions.metadata_changed(now, group)
            self._context.metadata.follow_group(group, replicas.partitions.get(group))
            self._context.resources.deliver_early(group)
        replicas.endings.may_have_moved(result.changed_groups)
        if result.brokers_changed:
            self._context.metadata.peers_changed = True
            self.follow_lost_disks()
            # Partitions created while a node waited to return empty belong to its current disk.
            replicas.partitions.reconcile(now)
        self._answer_changes()

    def metadata_restored(self) -> None:
        """Handles the replacement of the image by a snapshot."""
        image, now, replicas = self._replica.image, self._context.time.now, self._services.replicas
        self._journal.start_from(image)
        if self._services.cluster.watches.is_watched:
            self._services.cluster.watches.begin_anew()
        self._context.metadata.peers_changed = True
        self.follow_lost_disks()
        replicas.endings.find_deleted()
        replicas.endings.may_have_moved(replicas.partitions.held)
        replicas.partitions.reconcile(now)
        self._context.metadata.follow_groups(replicas.partitions)
        for partition in replicas.partitions:
            replicas.partitions.metadata_changed(now, partition.group)
        self._answer_changes()

    def _answer_changes(self) -> None:
        """Answers the clients whose changes are in the image now."""
        cluster = self._services.cluster
        for changes in (cluster.topics, cluster.acls, cluster.credentials, cluster.quotas, cluster.node_settings):
            changes.on_applied()

    def follow_lost_disks(self) -> None:
        """Refuses the streams of disks that were given up, also after a restart."""
        broker = self._services.replicas.broker

        def kept(index: int) -> None:
            broker.lost_index = max(broker.lost_index, index)

        self._context.resources.refused.follow(self._replica.image, kept)
