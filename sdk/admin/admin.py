"""The synchronous admin client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

from quorumlog.sdk.acls import ACL, ACLDecision, ACLFilter, ACLOperation, ResourcePattern
from quorumlog.sdk.admin.async_admin import AsyncAdmin
from quorumlog.sdk.admin.cluster_watch import ClusterChange, next_change
from quorumlog.sdk.admin.config import AdminConfig, AdminOptions
from quorumlog.sdk.admin.credential_admin import UserAlteration
from quorumlog.sdk.credentials import AlteredUsers, Revocation, UserScramCredential
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.help_text import named, shows_options, speaks_as
from quorumlog.sdk.runtime.event_loop import BackgroundLoop
from quorumlog.sdk.types import (
    ClusterDescription,
    ConfigEntry,
    GroupDescription,
    GroupListing,
    GroupState,
    NewPartitions,
    NewTopic,
    NodeDescription,
    NodePlan,
    OffsetAndMetadata,
    PartitionReassignment,
    ProducerListing,
    QuorumDescription,
    RebalancePlan,
    TopicDescription,
    TopicPartition,
)


@speaks_as(AsyncAdmin)
@shows_options(AdminOptions, AdminConfig)
class Admin:
    """Creates, changes, describes and deletes topics, administers groups, describes the cluster. Thread-safe.

    Nothing is connected before the first call, and every call is bounded by ``request_timeout_ms``. Any node of the
    cluster will do as a bootstrap server. The options are explained below, with their defaults.

    Example::

        Admin(bootstrap_servers="127.0.0.1:19092").create_topics([NewTopic("orders", num_partitions=3)])
    """

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        self._core = AsyncAdmin(**options)
        self._core.when_dropped.detach()
        self._background = BackgroundLoop("Admin")
        self._closed = False
        self._background.own(self, self._core.close)

    def create_topics(self, new_topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """Creates topics; see :meth:`AsyncAdmin.create_topics`."""
        self._background.run(self._core.create_topics(new_topics, validate_only=validate_only))

    def delete_topics(self, topics: Sequence[str]) -> None:
        """Deletes topics with all their records; see :meth:`AsyncAdmin.delete_topics`."""
        self._background.run(self._core.delete_topics(topics))

    def create_partitions(
        self, topic_partitions: Mapping[str, NewPartitions | int], *, validate_only: bool = False
    ) -> None:
        """Adds partitions to topics; see :meth:`AsyncAdmin.create_partitions`."""
        self._background.run(self._core.create_partitions(topic_partitions, validate_only=validate_only))

    def alter_configs(self, configs: Mapping[str, Mapping[str, object | None]], *, validate_only: bool = False) -> None:
        """Sets and clears configuration keys of topics; see :meth:`AsyncAdmin.alter_configs`."""
        self._background.run(self._core.alter_configs(configs, validate_only=validate_only))

    def describe_configs(self, topics: Sequence[str]) -> dict[str, dict[str, ConfigEntry]]:
        """Every configuration key of topics; see :meth:`AsyncAdmin.describe_configs`."""
        return self._background.run(self._core.describe_configs(topics))

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """The names of all topics, sorted; see :meth:`AsyncAdmin.list_topics`."""
        return self._background.run(self._core.list_topics(include_internal=include_internal))

    def describe_topics(
        self, topics: Sequence[str] | None = None, *, linearizable: bool = False, include_internal: bool = False
    ) -> list[TopicDescription]:
        """Describes topics, or all of them; see :meth:`AsyncAdmin.describe_topics`."""
        return self._background.run(
            self._core.describe_topics(topics, linearizable=linearizable, include_internal=include_internal)
        )

    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, QuorumlogError | None]:
        """Hands partitions over to their preferred leaders; see :meth:`AsyncAdmin.elect_leaders`."""
        return self._background.run(self._core.elect_leaders(partitions))

    def delete_records(self, records_to_delete: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Deletes the oldest records of partitions; see :meth:`AsyncAdmin.delete_records`."""
        return self._background.run(self._core.delete_records(records_to_delete))

    def reassign_partitions(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        throttle_bytes_per_second: int = 0,
        validate_only: bool = False,
    ) -> None:
        """Begins to move partitions to other nodes; see :meth:`AsyncAdmin.reassign_partitions`."""
        self._background.run(
            self._core.reassign_partitions(
                reassignments, throttle_bytes_per_second=throttle_bytes_per_second, validate_only=validate_only
            )
        )

    def rebalance_partitions(
        self, *, most_moves: int = 1_000, throttle_bytes_per_second: int = 0, validate_only: bool = False
    ) -> RebalancePlan:
        """Spreads replicas and leaderships over the nodes; see :meth:`AsyncAdmin.rebalance_partitions`."""
        return self._background.run(
            self._core.rebalance_partitions(
                most_moves=most_moves,
                throttle_bytes_per_second=throttle_bytes_per_second,
                validate_only=validate_only,
            )
        )

    def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """The partitions that are being moved, as of now."""
        return self._background.run(self._core.list_partition_reassignments())

    def list_groups(self, states: Iterable[GroupState | str] | None = None) -> list[GroupListing]:
        """All consumer groups, or those in some states, sorted by their ids."""
        return self._background.run(self._core.list_groups(states))

    def describe_groups(self, group_ids: Iterable[str], *, include_offsets: bool = False) -> list[GroupDescription]:
        """Groups with their members; see :meth:`AsyncAdmin.describe_groups`."""
        return self._background.run(self._core.describe_groups(group_ids, include_offsets=include_offsets))

    def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets that a group has committed; see :meth:`AsyncAdmin.list_group_offsets`."""
        return self._background.run(self._core.list_group_offsets(group_id, partitions))

    def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]) -> None:
        """Sets where a group without members goes on; see :meth:`AsyncAdmin.alter_group_offsets`."""
        self._background.run(self._core.alter_group_offsets(group_id, offsets))

    def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Deletes what a group has committed of partitions; see :meth:`AsyncAdmin.delete_group_offsets`."""
        self._background.run(self._core.delete_group_offsets(group_id, partitions))

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Deletes groups without members; see :meth:`AsyncAdmin.delete_groups`."""
        self._background.run(self._core.delete_groups(group_ids))

    def list_producers(self, prefix: str = "") -> list[ProducerListing]:
        """Producer names that are claimed; see :meth:`AsyncAdmin.list_producers`."""
        return self._background.run(self._core.list_producers(prefix))

    def delete_producers(self, names: Iterable[str], *, claimed_before_ms: int | None = None) -> None:
        """Deletes producer names, for good; see :meth:`AsyncAdmin.delete_producers`."""
        self._background.run(self._core.delete_producers(names, claimed_before_ms=claimed_before_ms))

    def describe_cluster(self, *, linearizable: bool = False) -> ClusterDescription:
        """The brokers and the active controller; see :meth:`AsyncAdmin.describe_cluster`."""
        return self._background.run(self._core.describe_cluster(linearizable=linearizable))

    def describe_quorum(self) -> QuorumDescription:
        """The metadata quorum: its leader, voters and observers; see :meth:`AsyncAdmin.describe_quorum`."""
        return self._background.run(self._core.describe_quorum())

    def alter_quorum(
        self, *, add: Iterable[int] = (), remove: Iterable[int] = (), validate_only: bool = False
    ) -> tuple[int, ...]:
        """Changes who votes in the metadata quorum; see :meth:`AsyncAdmin.alter_quorum`."""
        return self._background.run(self._core.alter_quorum(add=add, remove=remove, validate_only=validate_only))

    def upgrade_features(self, *, validate_only: bool = False) -> int:
        """Raises the feature level; see :meth:`AsyncAdmin.upgrade_features`."""
        return self._background.run(self._core.upgrade_features(validate_only=validate_only))

    def drain_node(
        self,
        node_id: int,
        *,
        to: int | None = None,
        throttle_bytes_per_second: int = 0,
        validate_only: bool = False,
    ) -> NodePlan:
        """Has all replicas of a node moved to others; see :meth:`AsyncAdmin.drain_node`."""
        return self._background.run(
            self._core.drain_node(
                node_id, to=to, throttle_bytes_per_second=throttle_bytes_per_second, validate_only=validate_only
            )
        )

    def undrain_node(self, node_id: int) -> None:
        """Lets a node stay that is being drained; see :meth:`AsyncAdmin.undrain_node`."""
        self._background.run(self._core.undrain_node(node_id))

    def replace_disk(
        self,
        node_id: int,
        *,
        directory_id: str | None = None,
        throttle_bytes_per_second: int = 0,
        validate_only: bool = False,
    ) -> NodePlan:
        """Lets a node that has lost its disk return with an empty one; see :meth:`AsyncAdmin.replace_disk`."""
        return self._background.run(
            self._core.replace_disk(
                node_id,
                directory_id=directory_id,
                throttle_bytes_per_second=throttle_bytes_per_second,
                validate_only=validate_only,
            )
        )

    def remove_node(self, node_id: int, *, validate_only: bool = False) -> None:
        """Strikes an empty node off that is down; see :meth:`AsyncAdmin.remove_node`."""
        self._background.run(self._core.remove_node(node_id, validate_only=validate_only))

    def create_acls(self, acls: Iterable[ACL]) -> int:
        """Creates rules of who may do what; see :meth:`AsyncAdmin.create_acls`."""
        return self._background.run(self._core.create_acls(acls))

    def describe_acls(self, acl_filter: ACLFilter | None = None) -> list[ACL]:
        """The rules of who may do what; see :meth:`AsyncAdmin.describe_acls`."""
        return self._background.run(self._core.describe_acls(acl_filter))

    def delete_acls(self, acl_filters: Iterable[ACLFilter]) -> list[ACL]:
        """Deletes rules of who may do what; see :meth:`AsyncAdmin.delete_acls`."""
        return self._background.run(self._core.delete_acls(acl_filters))

    def check_acl(
        self, operation: ACLOperation, resource: ResourcePattern, *, principal: str | None = None
    ) -> ACLDecision:
        """What somebody may do, and by which rule; see :meth:`AsyncAdmin.check_acl`."""
        return self._background.run(self._core.check_acl(operation, resource, principal=principal))

    def alter_user_scram_credentials(self, alterations: Iterable[UserAlteration]) -> AlteredUsers:
        """Creates, changes and deletes users; see :meth:`AsyncAdmin.alter_user_scram_credentials`."""
        return self._background.run(self._core.alter_user_scram_credentials(alterations))

    def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> list[UserScramCredential]:
        """Users who sign in by password; see :meth:`AsyncAdmin.describe_user_scram_credentials`."""
        return self._background.run(self._core.describe_user_scram_credentials(users))

    def revoke(self, *, serials: Iterable[str] = (), principals: Iterable[str] = ()) -> int:
        """Revokes certificates and principals; see :meth:`AsyncAdmin.revoke`."""
        return self._background.run(self._core.revoke(serials=serials, principals=principals))

    def restore(self, *, serials: Iterable[str] = (), principals: Iterable[str] = ()) -> int:
        """Has count again what was revoked; see :meth:`AsyncAdmin.restore`."""
        return self._background.run(self._core.restore(serials=serials, principals=principals))

    def describe_revocations(self) -> list[Revocation]:
        """What was revoked; see :meth:`AsyncAdmin.describe_revocations`."""
        return self._background.run(self._core.describe_revocations())

    def alter_client_quotas(self, quotas: Mapping[str, Mapping[str, float | None]]) -> int:
        """Sets and removes quotas; see :meth:`AsyncAdmin.alter_client_quotas`."""
        return self._background.run(self._core.alter_client_quotas(quotas))

    def describe_client_quotas(self, principals: Iterable[str] | None = None) -> dict[str, dict[str, float]]:
        """What was set of quotas; see :meth:`AsyncAdmin.describe_client_quotas`."""
        return self._background.run(self._core.describe_client_quotas(principals))

    def describe_nodes(self) -> list[NodeDescription | QuorumlogError]:
        """Every registered broker about itself, or the error it failed with, by node id."""
        return self._background.run(self._core.describe_nodes())

    def describe_node(self, address: str | None = None) -> NodeDescription:
        """One node about itself: that at ``address``, or the first bootstrap server."""
        return self._background.run(self._core.describe_node(address))

    def watch_cluster(self, address: str | None = None) -> Iterator[ClusterChange]:
        """What changes in the cluster, as a node hears of it; see :meth:`AsyncAdmin.watch_cluster`."""
        changes = self._core.watch_cluster(address)
        return iter(lambda: self._background.run(next_change(changes)), None)

    def close(self, timeout: float | None = None) -> None:
        """Closes connections. May be called twice, and in a forked child, where it only lets go."""
        if self._closed:
            return
        if self._background.fork.same_process:
            self._background.run(self._core.close(), timeout_s=10.0)
        self._closed = True  # Not before: a Ctrl-C may have come.
        self._background.release(self)

    def __repr__(self) -> str:
        return named("Admin", self._core.config.bootstrap_servers, self._closed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
