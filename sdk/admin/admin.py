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
from quorumlog.sdk.help_text import named, shows_options
from quorumlog.sdk.runtime.event_loop import BackgroundLoop
from quorumlog.sdk.transaction_views import (
    PartitionProducers,
    TransactionDescription,
    TransactionListing,
    TransactionPlace,
    TransactionState,
)
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
    NodeSettings,
    OffsetAndMetadata,
    PartitionReassignment,
    ProducerListing,
    QuorumDescription,
    RebalancePlan,
    TopicDescription,
    TopicPartition,
)


@shows_options(AdminConfig)
class Admin:
    """Creates, changes, describes and deletes topics, administers groups, describes the cluster. Thread-safe.

    It connects on the first call, and every call is limited by ``request_timeout_ms``.

    Example::

        Admin(bootstrap_servers="127.0.0.1:19092").create_topics([NewTopic("orders", num_partitions=3)])

    The options, with their defaults. Names in ``_ms`` are milliseconds, sizes are bytes.
    :class:`~quorumlog.sdk.runtime.security.SecurityOptions` documents the options for TLS and authentication.

    bootstrap_servers='127.0.0.1:19092': ``host:port``, several separated by commas or as a sequence; any nodes of the
        cluster.
    request_timeout_ms=30000: time limit of one call.
    bootstrap_timeout_ms=3000: time limit for reaching a first node.
    client_id='quorumlog-admin': the user agent that nodes see.

    Every method may also raise:
        IllegalArgumentError: an argument has a wrong type or value.
        NoBrokersAvailableError: no node was reached.
        RequestTimedOutError: the call did not complete in time; unless ``definite``, it may still take effect.
        AuthorizationFailedError: the caller lacks a permission.
        ClientClosedError, ForkedClientError: the client is closed, or belongs to the parent process.
    """

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        self._core = AsyncAdmin(**options)
        self._core.when_dropped.detach()
        self._background = BackgroundLoop("Admin")
        self._closed = False
        self._background.own(self, self._core.close)

    def create_topics(self, new_topics: Iterable[NewTopic], *, validate_only: bool = False) -> None:
        """Creates topics, and returns once every node that answers serves them.

        Arguments:
            validate_only: check only, create nothing.

        Raises:
            QuorumlogError: the error of the first topic that could not be created; the message names the other ones.
        """
        self._background.run(self._core.create_topics(new_topics, validate_only=validate_only))

    def delete_topics(self, topics: Sequence[str]) -> None:
        """Deletes topics with all their records permanently, and returns once no node that answers shows them.

        Their names are free at once. Nodes delete the records from their disks gradually; a node that is down does so
        after its restart.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            QuorumlogError: the error of the first topic that could not be deleted; the message names the other ones.
        """
        self._background.run(self._core.delete_topics(topics))

    def create_partitions(
        self, topic_partitions: Mapping[str, NewPartitions | int], *, validate_only: bool = False
    ) -> None:
        """Adds partitions to topics, and returns once every node that answers serves them.

        Records with keys may go to another partition than before. The order of the records of a key is then guaranteed
        within each partition only. Consumers notice the new partitions and read them from their beginning.

        Arguments:
            topic_partitions: topic to its new total number of partitions, or to :class:`NewPartitions`.
            validate_only: check only, change nothing.

        Raises:
            InvalidPartitionsError: the number is not larger than the current one, or too large.
            QuorumlogError: the error of the first topic that could not be changed; the message names the other ones.
        """
        self._background.run(self._core.create_partitions(topic_partitions, validate_only=validate_only))

    def alter_configs(self, configs: Mapping[str, Mapping[str, object | None]], *, validate_only: bool = False) -> None:
        """Sets and clears single configuration keys of topics, and returns once every node that answers applies them.

        Other keys keep their values.

        Arguments:
            configs: topic to key to value, such as ``{"orders": {"retention.ms": 60000, "retention.bytes": None}}``;
                None clears the key, so that its default applies again.
            validate_only: check only, change nothing.

        Raises:
            InvalidConfigError: a key is unknown, or a value has the wrong type or range.
            QuorumlogError: the error of the first topic that could not be changed; the message names the other ones.
        """
        self._background.run(self._core.alter_configs(configs, validate_only=validate_only))

    def describe_configs(self, topics: Sequence[str]) -> dict[str, dict[str, ConfigEntry]]:
        """Returns every configuration key of topics, by topic and key.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
        """
        return self._background.run(self._core.describe_configs(topics))

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Returns the names of all topics, sorted.

        Arguments:
            include_internal: also list the cluster's own topics, such as ``__groups``.
        """
        return self._background.run(self._core.list_topics(include_internal=include_internal))

    def describe_topics(
        self, topics: Sequence[str] | None = None, *, linearizable: bool = False, include_internal: bool = False
    ) -> list[TopicDescription]:
        """Describes topics, or all of them, sorted by name.

        Arguments:
            include_internal: include the cluster's own topics when all topics are described.
            linearizable: show every change that completed before this call; the node asks the controller for them.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
        """
        return self._background.run(
            self._core.describe_topics(topics, linearizable=linearizable, include_internal=include_internal)
        )

    def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, QuorumlogError | None]:
        """Moves the leadership of partitions to their preferred leaders, the first of their replicas.

        This is Kafka's PREFERRED election. Leaderships also return automatically (``auto.leader.rebalance.enable``);
        this call does not wait for that. Idempotent producers do not notice.

        Arguments:
            partitions: the partitions; None: all that are not led by their preferred leader.

        Returns:
            For each partition None once its preferred leader leads. Otherwise an error: ElectionNotNeededError if it
                led already, PreferredLeaderNotAvailableError if it cannot lead.
        """
        return self._background.run(self._core.elect_leaders(partitions))

    def delete_records(self, records_to_delete: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Deletes the oldest records of partitions: the log start moves up on every replica.

        Deleted records cannot be read once this call returns. Disk space is freed later, in the background and in whole
        batches. Repeating the call has no effect.

        Arguments:
            records_to_delete: for each partition the first offset to keep; -1 deletes all its records.

        Returns:
            The offset at which each partition starts now.

        Raises:
            OffsetOutOfRangeError: an offset is beyond the high watermark.
            PolicyViolationError: the topic is compacted.
            QuorumlogError: the error of the first partition that failed; others may have succeeded.
        """
        return self._background.run(self._core.delete_records(records_to_delete))

    def reassign_partitions(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        throttle_bytes_per_second: int = 0,
        validate_only: bool = False,
    ) -> None:
        """Starts to move partitions to other nodes, and returns once the cluster has accepted the moves.

        Each new replica copies the log first. Then the voters change, and the replicas that are no longer wanted are
        deleted. Producers and consumers continue. ``list_partition_reassignments`` shows the moves that are not
        finished.

        Arguments:
            reassignments: for each partition the nodes of all its replicas, the preferred leader first; None cancels
                the current move, and the partition returns to its former nodes.
            throttle_bytes_per_second: the most that each node sends for all moves with the same limit, at least 1 MiB;
                0: no limit. Repeat the same move with another limit to change it.
            validate_only: check only, change nothing.

        Raises:
            InvalidReplicaAssignmentError: a node is not registered, is down, or is named twice.
            InvalidReplicationFactorError: the number of nodes is even, which the cluster's feature level does not
                support yet.
            ReassignmentInProgressError: no move is in progress that could be cancelled.
            QuorumlogError: the error of the first partition that could not be moved; the message names the other ones.
        """
        self._background.run(
            self._core.reassign_partitions(
                reassignments, throttle_bytes_per_second=throttle_bytes_per_second, validate_only=validate_only
            )
        )

    def rebalance_partitions(
        self, *, most_moves: int = 1_000, throttle_bytes_per_second: int = 0, validate_only: bool = False
    ) -> RebalancePlan:
        """Spreads replicas, their bytes and leaderships evenly over the nodes that are up and not drained, and over
        racks.

        Returns once the cluster has accepted the moves; observe and cancel them like those of ``reassign_partitions``.

        Arguments:
            most_moves: the most partitions to change, the most useful changes first; 1 to 1,000.
            throttle_bytes_per_second: as for ``reassign_partitions``.
            validate_only: plan only, change nothing.

        Raises:
            ReassignmentInProgressError: partitions are being moved or a node is being drained, so that a plan would be
                outdated at once.
        """
        return self._background.run(
            self._core.rebalance_partitions(
                most_moves=most_moves,
                throttle_bytes_per_second=throttle_bytes_per_second,
                validate_only=validate_only,
            )
        )

    def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]:
        """Returns the partitions that are being moved."""
        return self._background.run(self._core.list_partition_reassignments())

    def list_groups(self, states: Iterable[GroupState | str] | None = None) -> list[GroupListing]:
        """Returns all consumer groups, or those in the given states, sorted by id."""
        return self._background.run(self._core.list_groups(states))

    def describe_groups(self, group_ids: Iterable[str], *, include_offsets: bool = False) -> list[GroupDescription]:
        """Describes groups with their members, in the given order.

        Arguments:
            include_offsets: also return the committed offsets, in :attr:`GroupDescription.offsets`.

        Raises:
            GroupIdNotFoundError: a group does not exist.
        """
        return self._background.run(self._core.describe_groups(group_ids, include_offsets=include_offsets))

    def list_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the offsets that a group has committed, at least as new as the call; partitions without one are left
        out.

        Arguments:
            partitions: the partitions; None: all of them.
        """
        return self._background.run(self._core.list_group_offsets(group_id, partitions))

    def alter_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata | int]) -> None:
        """Sets the committed offsets of a group without members in the given partitions; creates the group if
        necessary.

        Raises:
            NonEmptyGroupError: the group has members, which would not notice.
            OffsetOutOfRangeError: an offset lies outside its partition; nothing was changed.
            QuorumlogError: the error of the first partition that failed; others may have succeeded.
        """
        self._background.run(self._core.alter_group_offsets(group_id, offsets))

    def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Deletes the committed offsets of a group in partitions to which none of its members subscribes.

        Raises:
            GroupSubscribedToTopicError: a member subscribes to a topic.
            QuorumlogError: the error of the first partition that failed; others may have succeeded.
        """
        self._background.run(self._core.delete_group_offsets(group_id, partitions))

    def delete_groups(self, group_ids: Iterable[str]) -> None:
        """Deletes groups without members, with their committed offsets.

        Raises:
            NonEmptyGroupError: a group has members.
            GroupIdNotFoundError: a group does not exist.
            QuorumlogError: the error of the first group that could not be deleted; others may have been deleted.
        """
        self._background.run(self._core.delete_groups(group_ids))

    def list_transactions(
        self,
        states: Iterable[TransactionState | str] | None = None,
        *,
        producer_ids: Iterable[int] | None = None,
        longer_than_ms: int | None = None,
        name_pattern: str = "",
    ) -> list[TransactionListing]:
        """Returns transactional ids, sorted. Filters apply together.

        Arguments:
            states: only ids in these states; None: all.
            producer_ids: only ids with these producer ids; None: all.
            longer_than_ms: only ids whose transaction has been open for longer; None: all.
            name_pattern: only ids that match as a whole, a regular expression (RE2); empty: all.

        Raises:
            InvalidRegularExpressionError: the pattern is not a regular expression.
        """
        return self._background.run(
            self._core.list_transactions(
                states, producer_ids=producer_ids, longer_than_ms=longer_than_ms, name_pattern=name_pattern
            )
        )

    def describe_transactions(self, transactional_ids: Iterable[str]) -> list[TransactionDescription]:
        """Describes transactional ids with the participants of their transactions, in the given order.

        Raises:
            InvalidProducerIdMappingError: a transactional id does not exist.
        """
        return self._background.run(self._core.describe_transactions(transactional_ids))

    def abort_transaction(self, transactional_id: str, place: TransactionPlace) -> bool:
        """Aborts an open transaction, and fences its producer. A repeated call succeeds.

        Arguments:
            place: the transaction, from :attr:`TransactionDescription.place`. A later one of the same id is not
                aborted.

        Returns:
            True if readers see the outcome everywhere; False if it is certain, but some participants do not have it
            yet.

        Raises:
            InvalidTxnStateError: the transaction is committed, or over for long.
        """
        return self._background.run(self._core.abort_transaction(transactional_id, place))

    def describe_producers(self, partition: TopicPartition) -> PartitionProducers:
        """Returns the producers that a partition remembers, with their open transactions.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
        """
        return self._background.run(self._core.describe_producers(partition))

    def list_producers(self, prefix: str = "") -> list[ProducerListing]:
        """Returns the claimed producer names, at least as new as the call, sorted by name.

        Arguments:
            prefix: return only names with this prefix.
        """
        return self._background.run(self._core.list_producers(prefix))

    def delete_producers(self, names: Iterable[str], *, claimed_before_ms: int | None = None) -> None:
        """Deletes producer names permanently.

        A producer that claimed such a name before can no longer write: it fails with
        :class:`InvalidProducerEpochError`. A producer that claims a deleted name is new to the cluster.

        Delete a name only when no work continues under it. A producer that repeats work under a deleted name writes its
        records again, and the log cannot detect that.

        Arguments:
            claimed_before_ms: delete only names whose last claim is older than this time, in milliseconds since the
                epoch; None: delete all of them.

        Raises:
            ProducerNameNotFoundError: a name does not exist.
            ProducerNameInUseError: a name was claimed since then.
            QuorumlogError: the error of the first name that could not be deleted; the message names the other ones.
        """
        self._background.run(self._core.delete_producers(names, claimed_before_ms=claimed_before_ms))

    def describe_cluster(self, *, linearizable: bool = False) -> ClusterDescription:
        """Returns the brokers and the active controller, as the answering node sees them.

        Arguments:
            linearizable: show every change that completed before this call; the node asks the controller for them.
        """
        return self._background.run(self._core.describe_cluster(linearizable=linearizable))

    def describe_quorum(self) -> QuorumDescription:
        """Returns the metadata quorum as its leader sees it: voters and observers.

        Without a leader, when no majority of the voters is up, any node answers with its own view: ``leader_id`` is
        None, and ``last_contact_ms`` shows from which nodes it receives messages.
        """
        return self._background.run(self._core.describe_quorum())

    def alter_quorum(
        self, *, add: Iterable[int] = (), remove: Iterable[int] = (), validate_only: bool = False
    ) -> tuple[int, ...]:
        """Changes the voters of the metadata quorum, and returns once the cluster has accepted the change (KIP-853).

        The voters change once all new ones have caught up; until then ``describe_quorum`` shows ``wanted_voters``.
        Choose an odd number: four voters survive no more failures than three.

        Arguments:
            add: node ids of registered nodes that become voters.
            remove: node ids of voters that stop voting.
            validate_only: check only, change nothing.

        Returns:
            The node ids of the future voters.

        Raises:
            InvalidRequestError: a node to add is not registered or is down, a node to remove is not a voter, or too few
                of the voters would be up.
        """
        return self._background.run(self._core.alter_quorum(add=add, remove=remove, validate_only=validate_only))

    def upgrade_features(self, *, validate_only: bool = False) -> int:
        """Raises the cluster's feature level to the highest that all nodes support (KIP-584).

        Needed only where the level does not rise automatically (setting ``feature_upgrade``). Afterwards a downgrade to
        the former version is impossible.

        Arguments:
            validate_only: check only, change nothing.

        Returns:
            The level, which may be unchanged.

        Raises:
            UnsupportedVersionError: some nodes still run the former version; the message names them.
        """
        return self._background.run(self._core.upgrade_features(validate_only=validate_only))

    def drain_node(
        self,
        node_id: int,
        *,
        to: int | None = None,
        together: Iterable[int] = (),
        throttle_bytes_per_second: int = 0,
        validate_only: bool = False,
    ) -> NodePlan:
        """Moves all replicas of a node to other nodes, and returns once the cluster has accepted that.

        The node may be down. It gets no new replicas until ``undrain_node``. The drain survives restarts;
        ``describe_topics`` and ``list_partition_reassignments`` show its progress.

        Arguments:
            to: the node that takes over, including the vote in the metadata quorum if the drained node has one. By
                default each replica goes to the node with the fewest replicas, if possible in a rack without another
                one, and the vote stays.
            together: other nodes to drain at the same time, such as all workers of a machine; not with ``to``. None of
                them gets replicas of the others.
            throttle_bytes_per_second: as for ``reassign_partitions``; a new limit also applies to moves in progress.
            validate_only: check and plan only, change nothing.

        Raises:
            InvalidRequestError: the node does not exist, or ``to`` cannot take over.
            InvalidReplicaAssignmentError: a replica has no target, because too few other nodes exist.
        """
        return self._background.run(
            self._core.drain_node(
                node_id,
                to=to,
                together=together,
                throttle_bytes_per_second=throttle_bytes_per_second,
                validate_only=validate_only,
            )
        )

    def undrain_node(self, node_id: int) -> None:
        """Cancels the drain of a node. Moves in progress are reverted; replicas that have moved stay where they are."""
        self._background.run(self._core.undrain_node(node_id))

    def replace_disk(
        self,
        node_id: int,
        *,
        directory_id: str | None = None,
        throttle_bytes_per_second: int = 0,
        validate_only: bool = False,
    ) -> NodePlan:
        """Gives up the disk of a node that is down permanently, so that the node can return under its id with an empty
        disk.

        The cluster first removes the replicas of the node and its vote in the metadata quorum. Afterwards the node can
        start with an empty data directory, and gets all of them back as copies. Until then ``undrain_node`` cancels the
        replacement. It survives restarts; ``lost`` and ``returning`` of ``describe_cluster`` show its progress.

        Arguments:
            directory_id: the lost data directory, as in ``BrokerDescription``; None: the current one of the node.
            throttle_bytes_per_second: as for ``reassign_partitions``.
            validate_only: check and plan only, change nothing.

        Returns:
            For each partition the nodes that have a copy, and those that will have one in the end.

        Raises:
            InvalidRequestError: the node does not exist or is up, or a majority of the metadata quorum or of a
                partition is lost.
        """
        return self._background.run(
            self._core.replace_disk(
                node_id,
                directory_id=directory_id,
                throttle_bytes_per_second=throttle_bytes_per_second,
                validate_only=validate_only,
            )
        )

    def remove_node(self, node_id: int, *, validate_only: bool = False) -> None:
        """Removes a node that is down and has no replicas and no vote permanently: its id cannot be used again.

        Raises:
            InvalidRequestError: the node does not exist, is up, has replicas, or votes in the metadata quorum.
        """
        self._background.run(self._core.remove_node(node_id, validate_only=validate_only))

    def create_acls(self, acls: Iterable[ACL]) -> int:
        """Creates ACLs, and returns how many of them are new.

        Nodes apply them as soon as they receive them, normally within milliseconds.

        Raises:
            InvalidRequestError: an ACL is invalid; none of the same thousand was created.
            PolicyViolationError: the cluster would have more than 10,000 ACLs.
            ClusterAuthorizationFailedError: the caller has no permission to ``ALTER`` the cluster.
        """
        return self._background.run(self._core.create_acls(acls))

    def describe_acls(self, acl_filter: ACLFilter | None = None) -> list[ACL]:
        """Returns the ACLs that match a filter, in order; all of them without a filter."""
        return self._background.run(self._core.describe_acls(acl_filter))

    def delete_acls(self, acl_filters: Iterable[ACLFilter]) -> list[ACL]:
        """Deletes the ACLs that match any of the filters, and returns them.

        ACLs that are created during the call stay.
        """
        return self._background.run(self._core.delete_acls(acl_filters))

    def check_acl(
        self, operation: ACLOperation, resource: ResourcePattern, *, principal: str | None = None
    ) -> ACLDecision:
        """Returns a node's decision whether a principal has a permission, with the ACL that decides.

        Arguments:
            resource: a resource with its name.
            principal: None: the caller. Asking about others requires permission to ``DESCRIBE`` the cluster.
        """
        return self._background.run(self._core.check_acl(operation, resource, principal=principal))

    def alter_user_scram_credentials(self, alterations: Iterable[UserAlteration]) -> AlteredUsers:
        """Creates users with passwords, changes passwords and deletes users; either all changes are made or none.

        A call changes at most 1,000 users. Passwords are hashed in this process, in about 0.1 s for each mechanism, and
        never leave it. A password is set for SCRAM-SHA-256 and SCRAM-SHA-512, unless an alteration names one. Sessions
        of users who are deleted or get another password end as soon as nodes receive the change.

        Returns:
            How many users were created, and how many were deleted.

        Raises:
            InvalidRequestError: a user name is not allowed.
            PolicyViolationError: the cluster would have more than 10,000 users, or a user is a super user and the
                caller is not.
            UnsupportedVersionError: SCRAM-SHA-512 is named, and the cluster is below feature level 3.
            ClusterAuthorizationFailedError: the caller has no permission to ``ALTER`` the cluster.
        """
        return self._background.run(self._core.alter_user_scram_credentials(alterations))

    def describe_user_scram_credentials(self, users: Iterable[str] | None = None) -> list[UserScramCredential]:
        """Returns the passwords of users, by name and mechanism, without anything that would help to guess them.

        Arguments:
            users: their names; users who do not exist are left out. None: all.
        """
        return self._background.run(self._core.describe_user_scram_credentials(users))

    def revoke(self, *, serials: Iterable[str] = (), principals: Iterable[str] = ()) -> int:
        """Revokes certificates of clients, and principals, and returns how many were not revoked before.

        Their streams and sessions end as soon as nodes receive the change.

        Arguments:
            serials: serial numbers in hexadecimal digits.
            principals: ``User:`` and a name: revokes all their certificates, and their passwords.

        Raises:
            InvalidRequestError: a serial number or a principal is malformed.
            PolicyViolationError: one is a super user, or the cluster would have more than 10,000 revocations.
        """
        return self._background.run(self._core.revoke(serials=serials, principals=principals))

    def restore(self, *, serials: Iterable[str] = (), principals: Iterable[str] = ()) -> int:
        """Cancels revocations, and returns how many were in effect.

        Arguments:
            serials, principals: as for :meth:`revoke`.
        """
        return self._background.run(self._core.restore(serials=serials, principals=principals))

    def describe_revocations(self) -> list[Revocation]:
        """Returns all revocations: serial numbers, then principals, each sorted."""
        return self._background.run(self._core.describe_revocations())

    def alter_client_quotas(self, quotas: Mapping[str, Mapping[str, float | None]]) -> int:
        """Sets and removes quotas; either all changes are made or none. Other keys keep their values.

        Nodes apply the quotas as soon as they receive them, also to open streams.

        Arguments:
            quotas: principal to key to value per second, such as ``{"User:alice": {"producer_byte_rate": 1_000_000,
                "request_rate": None}}``; None removes the value. ``User:*`` is the default: it applies to each user
                without a value of their own, separately. Keys are ``producer_byte_rate``, ``consumer_byte_rate`` and
                ``request_rate``, which count per node, and ``controller_mutation_rate``: partitions created and
                deleted.

        Returns:
            How many principals have other quotas than before.

        Raises:
            InvalidRequestError: a key or a principal is unknown, or a value is out of range.
            PolicyViolationError: more than 10,000 principals would have quotas.
            ClusterAuthorizationFailedError: the caller has no permission to ``ALTER`` the cluster.
        """
        return self._background.run(self._core.alter_client_quotas(quotas))

    def describe_client_quotas(self, principals: Iterable[str] | None = None) -> dict[str, dict[str, float]]:
        """Returns the quotas that are set: by principal, by key, per second.

        Arguments:
            principals: those without quotas are left out. None: all, including the default (``User:*``).
        """
        return self._background.run(self._core.describe_client_quotas(principals))

    def alter_node_settings(
        self, settings: Mapping[str, str | None], *, node_id: int | None = None, validate_only: bool = False
    ) -> int:
        """Sets and removes settings of nodes at run time; either all changes are made or none.

        They take effect without a restart, and are stored in the metadata: they take precedence over files, the
        environment and command lines, also after a restart.

        Arguments:
            settings: name to value, as text, such as ``{"scrub_bytes_per_second": "0"}``; None removes the record of a
                setting, so that the configured value applies again. ``log_level.server.groups`` is the level of the
                logger of one package.
            node_id: the node; None: all nodes. Its own record overrides that of all nodes.
            validate_only: validate only, change nothing.

        Returns:
            How many records changed: 0 or 1.

        Raises:
            InvalidConfigError: an unknown setting, a wrong value, or a setting that needs a restart.
            InvalidRequestError: the node is not registered.
            UnsupportedVersionError: some node is of an older version.
            PolicyViolationError: the record would have more than 100 settings.
        """
        return self._background.run(
            self._core.alter_node_settings(settings, node_id=node_id, validate_only=validate_only)
        )

    def describe_node_settings(self, node_id: int) -> NodeSettings:
        """Returns all settings of a node with the source of each value, and the records of all nodes.

        Raises:
            InvalidRequestError: the node is not registered.
            RequestTimedOutError: the node did not answer in time.
        """
        return self._background.run(self._core.describe_node_settings(node_id))

    def describe_nodes(self) -> list[NodeDescription | QuorumlogError]:
        """Returns the description that every registered broker gives of itself, or the error of the request to it, by
        node id.
        """
        return self._background.run(self._core.describe_nodes())

    def describe_node(self, address: str | None = None) -> NodeDescription:
        """Returns the description that one node gives of itself: the node at ``address``, or the first bootstrap
        server.
        """
        return self._background.run(self._core.describe_node(address))

    def watch_cluster(self, address: str | None = None) -> Iterator[ClusterChange]:
        """Returns the cluster as a node sees it, and then every change, at most five times a second.

        The node reports its own view. It reports log ends only for the partitions that it leads: to see those of all
        partitions, watch all nodes. Resources that the caller has no permission to describe are left out. The iteration
        ends with an error when the node does not answer; start another one then.

        Arguments:
            address: of the node; None: the first bootstrap server.

        Raises:
            UnsupportedVersionError: the node is of an older version.
            QuorumlogError: the node does not answer, or too many callers watch it.

        Example::

            for change in admin.watch_cluster():
                print([topic.name for topic in change.topics], change.logs)
        """
        changes = self._core.watch_cluster(address)
        return iter(lambda: self._background.run(next_change(changes)), None)

    def close(self, timeout: float | None = None) -> None:
        """Closes connections. May be called twice; in a forked child it only marks the client as closed."""
        if self._closed:
            return
        if self._background.fork.same_process:
            self._background.run(self._core.close(), timeout_s=10.0)
        self._closed = True  # Not before: Ctrl-C may have interrupted the call.
        self._background.release(self)

    def __repr__(self) -> str:
        return named("Admin", self._core.config.bootstrap_servers, self._closed)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
