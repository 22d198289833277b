"""Options that a node is built with: its identity, its cluster and its limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Literal, NamedTuple

from quorumlog.raft.options import RaftOptions
from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.config.transaction_limits import TransactionLimits
from quorumlog.server.step.request_context import Listener


@dataclass(slots=True, frozen=True)
class NodeLimits:
    """Bounds of everything that could grow. A request beyond one gets a retriable error."""

    #: Bytes of batches in one produce request.
    request_bytes: int = 32 << 20
    #: Bytes of a request of a Kafka client, as brokers' default of socket.request.max.bytes.
    kafka_request_bytes: int = 100 << 20
    #: Bytes of one batch, whatever a topic's max.message.bytes says.
    batch_bytes: int = 8 << 20
    #: Produce requests waiting for their acknowledgement.
    pending_produces: int = 10_000
    #: Fetches waiting for data.
    parked_fetches: int = 10_000
    #: Offset look-ups waiting until a quorum has confirmed their leader.
    waiting_look_ups: int = 10_000
    #: Deletions of records waiting for their log start to move.
    waiting_deletions: int = 1_000
    #: Fetch sessions, and their partitions in total. Clients beyond these limits name all partitions in each fetch.
    fetch_sessions: int = 1_000
    fetch_session_partitions: int = 100_000
    #: Bytes of entries in one fetch response.
    fetch_bytes: int = 16 << 20
    #: Group calls and member heartbeats that one coordinator has yet to process.
    group_calls: int = 10_000
    #: Heartbeats that wait at one coordinator until something changes for their members.
    parked_heartbeats: int = 10_000
    #: Pending requests to the controller.
    controller_requests: int = 1_000
    #: Bytes of entries in one data frame; a single larger entry still travels alone.
    frame_bytes: int = 1 << 20
    #: Bytes of one slice of a snapshot, on disk and in one frame.
    snapshot_slice_bytes: int = 256 << 10
    #: Slices of a snapshot in transit to a follower that are not known to be durable there.
    snapshot_window: int = 2
    #: Snapshots that a node sends at the same time, and the same number that it receives.
    snapshot_transfers: int = 4
    #: The same for snapshots of one slice: a node that restarts may need one for each of thousands of partitions.
    small_snapshot_transfers: int = 64
    #: Maximum size of a snapshot that a node receives, in bytes.
    snapshot_bytes: int = 1 << 40
    #: Bytes of entries waiting for the disk at which appends are refused until it catches up.
    gathered_bytes: int = 64 << 20
    #: Approximate size of a compacted batch; and bytes of batches that compaction reads before it yields.
    compaction_batch_bytes: int = 256 << 10
    compaction_chunk_bytes: int = 1 << 20
    #: Bytes and records that one pass of compaction adds; their keys are in memory during the pass.
    compaction_pass_bytes: int = 64 << 20
    compaction_pass_records: int = 4_000_000
    #: Maximum bytes per second that compaction reads, over all partitions.
    compaction_bytes_per_second: int = 32 << 20
    #: Maximum bytes per second that this node sends to replicas that are being added on other nodes; 0: no limit.
    copy_bytes_per_second: int = 0
    #: Producers without a name whose sequences a partition remembers; four fifths of that number are kept with a name.
    #: It is not a setting because replicas must forget the same ones.
    producers_per_partition: int = 5_000
    #: Applied entries, of 48 bytes each, after which a witness drops its log.
    witness_traces: int = 1_000
    #: Fraction of the storage in use above which appends are refused, and below which they are accepted again.
    storage_refuse_above: float = 0.85
    storage_resume_below: float = 0.80
    #: Appends are also refused when fewer bytes than this are free.
    storage_reserve_bytes: int = 64 << 20
    #: Nodes whose data are on this node's disk, itself included: the workers of a machine.
    storage_sharers: int = 1

    def transfers_of(self, slices: int) -> int:
        """Returns how many snapshots with this number of slices may be in transit at the same time."""
        return self.snapshot_transfers if slices > 1 else self.small_snapshot_transfers


@dataclass(slots=True, frozen=True)
class BalanceOptions:
    """Options for returning leaderships to the preferred leaders. Times are in microseconds.

    Arguments:
        enabled: leaderships return automatically, not only on request.
        check_interval_us: how often a node looks for leaderships that belong to another node. Kafka's 300 s would leave
            a cluster unbalanced for minutes after each restart. Here a handover takes milliseconds and no producer
            notices, so 30 s only keeps a node that restarts repeatedly from taking its leaderships back each time.
        grace_us: the preferred leader must have been connected, and able to lead, for this long.
        max_transfers: maximum number in progress.
    """

    enabled: bool = True
    check_interval_us: int = 30_000_000
    grace_us: int = 5_000_000
    max_transfers: int = 10


@dataclass(slots=True, frozen=True)
class RepairOptions:
    """Automatic moves by the controller. Times are in microseconds; 0 disables.

    Arguments:
        rebalance_interval_us: how often the controller checks the balance of replicas, bytes and leaders, and moves a
            few.
        recovery_after_us: after this long without a node its replicas are recreated on others.
    """

    rebalance_interval_us: int = 0
    recovery_after_us: int = 0


@dataclass(slots=True, frozen=True)
class ConsumerGroupOptions:
    """Options of consumer group coordination. Times are in milliseconds.

    Arguments:
        coordinators: the number of coordinators, used when the first is looked up; only the controller's value counts.
        coordinators_factor: replicas of each; 0: three in a cluster of at least three nodes, otherwise one.
        offsets_retention_ms: how long unused committed offsets are kept.
        limits: bounds of members' requests. The minimum session timeout must be several election timeouts: a leader
            that was cut off must notice before its successor reassigns its members' partitions.
        checkpoint_entries, checkpoint_bytes: size of a coordinator's log at which a snapshot replaces it.
    """

    coordinators: int = 16
    coordinators_factor: int = 0
    offsets_retention_ms: int = 604_800_000
    limits: ConsumerGroupLimits = field(default_factory=ConsumerGroupLimits)
    checkpoint_entries: int = 5_000
    checkpoint_bytes: int = 4 << 20


@dataclass(slots=True, frozen=True)
class ScrubOptions:
    """Options of a node's scrub.

    Arguments:
        bytes_per_second: maximum read rate; 0: no scrub.
        interval_ms: from the start of one pass to that of the next; longer if a pass takes longer.
    """

    bytes_per_second: int = 4 << 20
    interval_ms: int = 24 * 3_600_000


@dataclass(slots=True, frozen=True)
class PairFiles:
    """Paths of a certificate (with the intermediates between it and its authority), its key, and the trusted
    authorities.

    Arguments:
        authorities: None if no certificate is requested from clients.
    """

    certificate: Path
    key: Path
    authorities: Path | None = None


@dataclass(slots=True, frozen=True)
class Endpoint:
    """The address at which clients and peers reach one of a node's listeners."""

    listener: Listener
    host: str
    port: int


@dataclass(slots=True, frozen=True)
class AuthorizationOptions:
    """Options of authorization.

    Arguments:
        enabled: operations that no ACL allows are denied. Otherwise every client may do everything.
        super_users: principals that may do everything, regardless of ACLs.
        audited: denials and changes are reported for the audit log.
        image_max_age_ms: records are only served if the metadata are no older than this, except to super users; 0: no
            limit.
        token_users: principals of super users, and of users with a password, that a bearer token may also name.
    """

    enabled: bool = False
    super_users: frozenset[str] = frozenset()
    audited: bool = False
    image_max_age_ms: int = 0
    token_users: frozenset[str] = frozenset()


class SettingSource(Enum):
    """The origin of a setting's value. Later ones take precedence."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    COMMAND_LINE = "command line"
    CLUSTER = "cluster"
    NODE = "node"


class ConfiguredSetting(NamedTuple):
    """A setting as the process of a node was started with it.

    Arguments:
        values: as text, with their sources, the effective one first.
    """

    name: str
    values: tuple[tuple[str, SettingSource], ...]


#: Lifetime of an authenticated session that is not renewed.
SESSION_LIFETIME_US = 15 * 60 * 1_000_000


@dataclass(slots=True, frozen=True)
class NodeOptions:
    """A node's identity, peers and times. Times are in microseconds.

    Arguments:
        node_id: unique in the cluster, at least 0.
        address: host:port at which peers reach this node, and also clients if there are no endpoints.
        endpoints: the address of each listener, if there is more than one listener.
        peer_listener: the listener at which other nodes are dialled.
        controllers: node id -> host:port of the voters of the metadata group, as configured at formation.
        rack: for placement; empty when unknown.
        machine: that it shares with other nodes; empty: it is a machine of its own.
        witness_only: it accepts witnesses of partitions, and no replicas.
        link_linger_us: time for which a link to a node is kept that shares no Raft group with this one any longer.
        session_lifetime_us: lifetime of an authenticated session that is not renewed.
        version: the version of the package, for reports; the default is for nodes without settings.
        data_dir: the path of its storage, for reports.
        log_level: the lowest level that is logged.
        kafka_connections_per_ip: maximum number of connections of Kafka's clients from one address.
        configured: all settings, for reports; empty for nodes without settings.
    """

    node_id: int
    address: str
    controllers: dict[int, str]
    endpoints: tuple[Endpoint, ...] = ()
    peer_listener: Listener = Listener.PLAINTEXT
    rack: str = ""
    machine: str = ""
    witness_only: bool = False
    version: str = "0.0.0"
    data_dir: str = ""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    kafka_connections_per_ip: int = 1_000
    configured: tuple[ConfiguredSetting, ...] = ()
    raft: RaftOptions = field(default_factory=RaftOptions)
    limits: NodeLimits = field(default_factory=NodeLimits)
    balance: BalanceOptions = field(default_factory=BalanceOptions)
    raises_features: bool = True
    groups: ConsumerGroupOptions = field(default_factory=ConsumerGroupOptions)
    transactions: TransactionLimits = field(default_factory=TransactionLimits)
    repair: RepairOptions = field(default_factory=RepairOptions)
    scrub: ScrubOptions = field(default_factory=ScrubOptions)
    authorization: AuthorizationOptions = field(default_factory=AuthorizationOptions)
    session_lifetime_us: int = SESSION_LIFETIME_US
    heartbeat_interval_us: int = RaftOptions().heartbeat_interval_us
    replica_lag_time_max_us: int = 10_000_000
    isr_check_interval_us: int = 250_000
    broker_heartbeat_interval_us: int = 500_000
    broker_session_timeout_us: int = 3_000_000
    controller_request_timeout_us: int = 1_500_000
    identify_interval_us: int = 100_000
    storage_stall_us: int = 2_000_000
    storage_retry_us: int = 500_000
    frame_ack_timeout_us: int = 5_000_000
    link_linger_us: int = 60_000_000
    snapshot_stall_us: int = 10_000_000
    stop_timeout_us: int = 5_000_000
    metadata_checkpoint_entries: int = 2_000
    compaction_interval_us: int = 15_000_000
    producer_id_expiration_us: int = 86_400_000_000

    @property
    def lease_interval_us(self) -> int:
        """The interval at which a node reports to another that it is alive: one lease may be late or lost without
        waking any group."""
        return max(self.heartbeat_interval_us, self.raft.election_timeout_us // 3)

    @property
    def told_everybody(self) -> tuple[str, int]:
        """Host and port for clients that do not support endpoints, or look for a kind that this node does not have.

        It is the listener without TLS if there is one, otherwise the one for clients with certificates.
        """
        for wanted in (Listener.PLAINTEXT, Listener.CLIENT):
            for each in self.endpoints:
                if each.listener is wanted:
                    return each.host, each.port
        host, _, port = self.address.rpartition(":")
        return host, int(port)
