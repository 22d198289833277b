"""What a node is told when it is made: who it is, whom it forms a cluster with, and its limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from quorumlog.raft.options import RaftOptions
from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.step.request_context import Listener


@dataclass(slots=True, frozen=True)
class NodeLimits:
    """Bounds of everything that could grow. Past each comes a retriable error."""

    #: Bytes of batches in one produce request.
    request_bytes: int = 32 << 20
    #: Bytes of one batch, whatever a topic's max.message.bytes says.
    batch_bytes: int = 8 << 20
    #: Produce requests waiting for their acknowledgement.
    pending_produces: int = 10_000
    #: Fetches waiting for data.
    parked_fetches: int = 10_000
    #: Look-ups of offsets waiting until a quorum has confirmed their leader.
    waiting_look_ups: int = 10_000
    #: Deletions of records waiting for their log start to move.
    waiting_deletions: int = 1_000
    #: Fetch sessions, and partitions in all of them together. Clients beyond them name all partitions in each fetch.
    fetch_sessions: int = 1_000
    fetch_session_partitions: int = 100_000
    #: Bytes of entries in one fetch response.
    fetch_bytes: int = 16 << 20
    #: Calls of groups, and heartbeats of members, that one coordinator has yet to decide.
    group_calls: int = 10_000
    #: Heartbeats that wait at one coordinator until there is news for their members.
    parked_heartbeats: int = 10_000
    #: Requests to the controller that wait for an answer.
    controller_requests: int = 1_000
    #: Bytes of entries in one data frame; a single larger entry still travels alone.
    frame_bytes: int = 1 << 20
    #: Bytes of one slice of a snapshot, on disk and in one frame.
    snapshot_slice_bytes: int = 256 << 10
    #: Slices of a snapshot on their way to a follower that are not known to be durable there.
    snapshot_window: int = 2
    #: Snapshots that a node sends at once, and as many that it receives.
    snapshot_transfers: int = 4
    #: The same for those of one slice: a node that comes back may need one for each of thousands of partitions.
    small_snapshot_transfers: int = 64
    #: Bytes of a snapshot that a node receives.
    snapshot_bytes: int = 1 << 40
    #: Bytes of entries waiting for the disk at which appends are refused until it catches up.
    gathered_bytes: int = 64 << 20
    #: Bytes of one compacted batch, about; and of batches that compaction reads before anything else may go on.
    compaction_batch_bytes: int = 256 << 10
    compaction_chunk_bytes: int = 1 << 20
    #: Bytes and records that one pass of compaction takes in anew: their keys are in memory meanwhile.
    compaction_pass_bytes: int = 64 << 20
    compaction_pass_records: int = 4_000_000
    #: Bytes that compaction reads in a second at most, over all partitions.
    compaction_bytes_per_second: int = 32 << 20
    #: Bytes per second that this node sends of replicas that are being added elsewhere; 0: no limit.
    copy_bytes_per_second: int = 0
    #: Producers without a name whose sequences a partition remembers, and beside them four fifths as many with one. No
    #: setting: replicas must forget the same ones.
    producers_per_partition: int = 5_000
    #: Applied entries of 48 bytes each after which a witness gives up its log.
    witness_traces: int = 1_000
    #: Fraction of the storage in use above which appends are refused, and below which they are taken again.
    storage_refuse_above: float = 0.85
    storage_resume_below: float = 0.80
    #: Appends are refused as well when fewer bytes than this are free.
    storage_reserve_bytes: int = 64 << 20

    def transfers_of(self, slices: int) -> int:
        """How many snapshots may be on their way at once: of one slice, or of more."""
        return self.snapshot_transfers if slices > 1 else self.small_snapshot_transfers


@dataclass(slots=True, frozen=True)
class BalanceOptions:
    """How leaderships return to the preferred leaders. Times are in microseconds.

    Arguments:
        enabled: by themselves, not only when asked for.
        check_interval_us: how often a node looks what it leads in another's place. Kafka's 300 s would leave a cluster
            lopsided for minutes after each restart; here a handing over takes milliseconds and no producer notices,
            so 30 s only keeps a node that comes and goes from taking its leaderships along each time.
        grace_us: the preferred leader must have been connected, and able to lead, for this long.
        max_transfers: under way at once.
    """

    enabled: bool = True
    check_interval_us: int = 30_000_000
    grace_us: int = 5_000_000
    max_transfers: int = 10


@dataclass(slots=True, frozen=True)
class RepairOptions:
    """What the controller moves without being asked. Times are in microseconds; 0: nothing.

    Arguments:
        rebalance_interval_us: how often it looks whether replicas, bytes and leaders are even, and moves a few.
        recovery_after_us: after this time without a node its replicas are made anew on others.
    """

    rebalance_interval_us: int = 0
    recovery_after_us: int = 0


@dataclass(slots=True, frozen=True)
class ConsumerGroupOptions:
    """How consumer groups are coordinated. Times are in milliseconds.

    Arguments:
        coordinators: how many there are to be, when the first is looked for; the controller's counts.
        coordinators_factor: replicas of each; 0: three in a cluster of three nodes and more, else one.
        offsets_retention_ms: how long committed offsets are kept that nobody needs.
        limits: what members may ask for. The least session must be several election timeouts: a leader that was cut off
            must have noticed before its successor gives away what is not its.
        checkpoint_entries, checkpoint_bytes: of a coordinator's log, after which a snapshot replaces them.
    """

    coordinators: int = 16
    coordinators_factor: int = 0
    offsets_retention_ms: int = 604_800_000
    limits: ConsumerGroupLimits = field(default_factory=ConsumerGroupLimits)
    checkpoint_entries: int = 5_000
    checkpoint_bytes: int = 4 << 20


@dataclass(slots=True, frozen=True)
class ScrubOptions:
    """How a node scrubs.

    Arguments:
        bytes_per_second: read at most; 0: never.
        interval_ms: from the beginning of one pass to that of the next, or longer where a pass takes longer.
    """

    bytes_per_second: int = 4 << 20
    interval_ms: int = 24 * 3_600_000


@dataclass(slots=True, frozen=True)
class PairFiles:
    """Where a certificate (with what is between it and its authority), its key, and the trusted authorities are.

    Arguments:
        authorities: None where nobody is asked for a certificate.
    """

    certificate: Path
    key: Path
    authorities: Path | None = None


@dataclass(slots=True, frozen=True)
class Endpoint:
    """Where others reach a node through one of its listeners."""

    listener: Listener
    host: str
    port: int


@dataclass(slots=True, frozen=True)
class AuthorizationOptions:
    """Whether clients are asked for permission.

    Arguments:
        enabled: what no rule allows is refused. Otherwise everybody may do everything.
        super_users: principals that may do everything, whatever rules say.
        audited: refusals and changes are told for the audit log.
        image_max_age_ms: records are served only by metadata that are no older, but to super users; 0: of any age.
        token_users: principals of super users and of users with a password that a bearer token may name as well.
    """

    enabled: bool = False
    super_users: frozenset[str] = frozenset()
    audited: bool = False
    image_max_age_ms: int = 0
    token_users: frozenset[str] = frozenset()


#: Of a sign-in, unless it is renewed.
SESSION_LIFETIME_US = 15 * 60 * 1_000_000


@dataclass(slots=True, frozen=True)
class NodeOptions:
    """A node's identity, peers and times. Times are in microseconds.

    Arguments:
        node_id: unique in the cluster, at least 0.
        address: host:port at which peers reach this node, and clients where there are no endpoints.
        endpoints: of each listener, where it has others than one for everybody.
        peer_listener: at which other nodes are dialled.
        controllers: node id -> host:port of the voters of the metadata group, as configured at formation.
        rack: for placement; empty when unknown.
        witness_only: it takes witnesses of partitions, and no replicas.
        session_lifetime_us: how long a sign-in is good unless it is renewed.
        data_dir: where its storage is, to be told.
    """

    node_id: int
    address: str
    controllers: dict[int, str]
    endpoints: tuple[Endpoint, ...] = ()
    peer_listener: Listener = Listener.PLAINTEXT
    rack: str = ""
    witness_only: bool = False
    version: str = "0.1.0"
    data_dir: str = ""
    raft: RaftOptions = field(default_factory=RaftOptions)
    limits: NodeLimits = field(default_factory=NodeLimits)
    balance: BalanceOptions = field(default_factory=BalanceOptions)
    raises_features: bool = True
    groups: ConsumerGroupOptions = field(default_factory=ConsumerGroupOptions)
    repair: RepairOptions = field(default_factory=RepairOptions)
    scrub: ScrubOptions = field(default_factory=ScrubOptions)
    authorization: AuthorizationOptions = field(default_factory=AuthorizationOptions)
    session_lifetime_us: int = SESSION_LIFETIME_US
    heartbeat_interval_us: int = 100_000
    replica_lag_time_max_us: int = 10_000_000
    isr_check_interval_us: int = 250_000
    broker_heartbeat_interval_us: int = 500_000
    broker_session_timeout_us: int = 3_000_000
    controller_request_timeout_us: int = 1_500_000
    identify_interval_us: int = 100_000
    storage_stall_us: int = 2_000_000
    storage_retry_us: int = 500_000
    frame_ack_timeout_us: int = 5_000_000
    snapshot_stall_us: int = 10_000_000
    stop_timeout_us: int = 5_000_000
    metadata_checkpoint_entries: int = 2_000
    compaction_interval_us: int = 15_000_000
    producer_id_expiration_us: int = 86_400_000_000

    @property
    def lease_interval_us(self) -> int:
        """How often a node tells another that it lives: a lease may be late or lost without anybody waking."""
        return max(self.heartbeat_interval_us, self.raft.election_timeout_us // 3)

    @property
    def told_everybody(self) -> tuple[str, int]:
        """Host and port for those who know of no endpoints, or look for a kind that this node does not have: without
        TLS if it listens so, else for clients by certificate."""
        for wanted in (Listener.PLAINTEXT, Listener.CLIENT):
            for each in self.endpoints:
                if each.listener is wanted:
                    return each.host, each.port
        host, _, port = self.address.rpartition(":")
        return host, int(port)
