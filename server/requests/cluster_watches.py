"""Watches of the cluster: a client sends the version that it has seen, and receives the changes since then once there
are any.

A watch is a series of requests, each of which waits for changes. So each response is authorized with the ACLs of its
moment, and a node keeps no state for a client between two requests. It keeps one state shared by all watchers: the
version at which each topic and each log that it leads changed last. It keeps that only while a client watches.

A watch is answered at most five times a second, and never without changes, so an idle cluster causes no wakeups. The
state of logs is this node's own, without a read index: the high watermark it reports may be behind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice

from quorumlog.server.access.authorizer import Authorizer
from quorumlog.server.controller.metadata_replica import MetadataReplica
from quorumlog.server.hosting.partition_replica import PartitionReplica
from quorumlog.server.metadata.records import ApplyResult
from quorumlog.server.partition.partition import Partition
from quorumlog.server.replicas.log_sizes import LogSizes
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.requests.metadata_queries import MetadataQueries
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.pending_calls import PendingCalls
from quorumlog.server.step.replies import Replies
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

#: Minimum time between two answers to the same watch.
TICK_US = 200_000
#: Maximum time that a request waits. It bounds how long a client whose session has ended receives no response.
MAX_WAIT_US = 5_000_000
#: Time without a request after which the cluster counts as not watched.
WATCHED_FOR_US = 10_000_000
#: Maximum number of requests that wait at once.
MAX_WATCHERS = 64
#: Number of deleted topics whose deletion is remembered. A client that is further behind receives the whole state
#: again.
MAX_GONE = 1_000
#: Maximum number of logs whose size is looked up at once, because each costs a search or two. The others follow in
#: later answers.
SIZES_AT_ONCE = 50


@dataclass(slots=True)
class WatchCall:
    """A request that waits: the version that the client has seen, and the deadline (µs)."""

    request_id: int
    deadline: int
    asked: ClientRequest
    version: int


@dataclass(slots=True)
class WatchedLog:
    """A log led by this node: leader epoch, high watermark and log start offset as of the last change, and the size as
    of the last lookup (None before the first)."""

    noted: tuple[int, int, int]
    version: int
    size_bytes: int | None = None


@dataclass(slots=True)
class WatchedVersions:
    """The version at which each part of the cluster changed last.

    Arguments:
        run: identifies the series of versions; versions of another run are not comparable.
        told_since: changes before this version may have been forgotten.
    """

    run: int
    version: int = 1
    told_since: int = 0
    cluster: int = 0
    topics: dict[str, int] = field(default_factory=dict)
    gone: dict[str, int] = field(default_factory=dict)
    logs: dict[int, WatchedLog] = field(default_factory=dict)
    leaders: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: Logs that have grown or shrunk since the last lookup of their size.
    sizes_due: dict[int, None] = field(default_factory=dict)
    #: True if something changed that has no version yet: it gets the next one.
    is_pending: bool = False

    def changed(self, topic: str) -> None:
        """Records that a topic changed."""
        self.topics[topic] = self.version + 1
        self.gone.pop(topic, None)
        self.is_pending = True

    def went(self, topic: str) -> None:
        """Records that a topic was deleted."""
        self.topics.pop(topic, None)
        self.gone.pop(topic, None)
        self.gone[topic] = self.version + 1
        if len(self.gone) > MAX_GONE:
            self.told_since = self.gone.pop(next(iter(self.gone)))
        self.is_pending = True

    def cluster_changed(self) -> None:
        """Records a change of the nodes or of the controller."""
        self.cluster = self.version + 1
        self.is_pending = True

    def knows(self, run: int, version: int) -> bool:
        """True if the changes since that version are still known."""
        return run == self.run and self.told_since <= version <= self.version


class ClusterWatches:
    """Serves watches of the cluster.

    Arguments:
        first_run: number of the first run of versions; differs from that of any other process.
        time: time of the current step.

    Attributes:
        is_watched: False while no client watches, in which case it need not be notified of changes.
    """

    def __init__(
        self,
        first_run: int,
        time: StepTime,
        metadata: MetadataReplica,
        queries: MetadataQueries,
        authorizer: Authorizer,
        partitions: Replicas,
        sizes: LogSizes,
        replies: Replies,
    ) -> None:
        self._time = time
        self._metadata = metadata
        self._queries = queries
        self._authorizer = authorizer
        self._partitions = partitions
        self._sizes = sizes
        self._replies = replies
        self._calls: PendingCalls[WatchCall] = PendingCalls(MAX_WATCHERS)
        self._versions = WatchedVersions(first_run)
        self.is_watched = False
        self._watched_until = 0
        self._rights = (0, 0)
        self._layout = 0
        #: The state of the brokers as of the last comparison.
        self._brokers: object = None
        self._told_at = 0
        #: True if a request that waits has not seen the newest version.
        self._is_one_behind = False
        self._deadline_moved: Callable[[], None] = lambda: None

    def register(self, hooks: ServiceHooks) -> None:
        hooks.serve(admin_pb2.WatchClusterRequest, self.watch)
        hooks.on_time(self.on_time)
        self._deadline_moved = hooks.deadline(self)
        hooks.client_gone(self.client_gone)
        hooks.raft_group_gone(self.raft_group_gone)
        hooks.calls(self._calls)

    # -- queries ----------------------------------------------------------------------------------------------

    def watch(self, time: StepTime, asked: ClientRequest, request: admin_pb2.WatchClusterRequest) -> None:
        """Answers immediately with the whole state if the changes since the client's version are unknown; otherwise
        waits for a change."""
        if not self.is_watched:
            self._begin_anew()
        self._watched_until = time.now + WATCHED_FOR_US
        call = WatchCall(asked.request_id, time.now + min(request.timeout_ms * 1_000, MAX_WAIT_US), asked,
                         request.version)  # fmt: skip
        if not self._versions.knows(request.run, request.version):
            self._commit()
            self._replies.reply(asked.request_id, self._answer(call.asked, None))
        elif self._calls.full:
            problem = f"{MAX_WATCHERS} watches of the cluster wait on this node already: watch on another node"
            self._replies.reply(asked.request_id, failed_watch(request, error(ErrorCode.SERVER_BUSY, problem)))
        else:
            self._calls.add(call)
            self._is_one_behind = self._is_one_behind or call.version < self._versions.version

    def client_gone(self, request_id: int) -> None:
        self._calls.take(request_id)

    def on_time(self, now: int, wall_ms: int) -> None:
        """Sends the changes that are due, and answers the requests whose deadline has passed."""
        if self._is_due and now >= self._told_at + TICK_US:
            self._tell(now)
        for call in self._calls.take_expired(now):
            self._replies.reply(call.request_id, self._nothing(call))

    @property
    def next_deadline(self) -> int | None:
        """Time at which ``on_time`` is due; None if nothing is."""
        return self._told_at + TICK_US if self._is_due else None

    @property
    def _is_due(self) -> bool:
        return bool(len(self._calls)) and (
            self._versions.is_pending or self._is_one_behind or bool(self._versions.sizes_due)
        )

    def _tell(self, now: int) -> None:
        self._look_sizes_up()
        self._commit()
        self._told_at, self._is_one_behind = now, False
        for call in self._calls:
            answer = self._answer(call.asked, call.version)
            if answer.HasField("cluster") or answer.topics or answer.gone_topics or answer.logs:
                self._calls.take(call.request_id)
                self._replies.reply(call.request_id, answer)
            else:
                # The client may see none of the changes, so it does not even learn that there were any.
                call.version = self._versions.version

    def _look_sizes_up(self) -> None:
        versions = self._versions
        for group in list(islice(versions.sizes_due, SIZES_AT_ONCE)):
            del versions.sizes_due[group]
            log, watched = self._partitions.logs.get(group), versions.logs.get(group)
            if log is not None and watched is not None and log.leads:
                watched.size_bytes, watched.version = self._sizes.size_of(log), versions.version + 1
                versions.is_pending = True

    def _commit(self) -> None:
        if self._versions.is_pending:
            self._versions.version += 1
            self._versions.is_pending = False
            self._is_one_behind = True

    def _nothing(self, call: WatchCall) -> admin_pb2.WatchClusterResponse:
        return admin_pb2.WatchClusterResponse(run=self._versions.run, version=call.version)

    # -- answers ----------------------------------------------------------------------------------------------

    def _answer(self, asked: ClientRequest, since: int | None) -> admin_pb2.WatchClusterResponse:
        """Returns the changes since a version that a client is authorized to see; everything if the version is None."""
        versions, image = self._versions, self._metadata.image
        whole, after = since is None, -1 if since is None else since
        response = admin_pb2.WatchClusterResponse(run=versions.run, version=versions.version, whole=whole)
        changed = image.topics if whole else [name for name, at in versions.topics.items() if at > after]
        names = [name for name in changed if name in image.topics and self._sees(asked, name)]
        if whole or versions.cluster > after:
            response.cluster.CopyFrom(self._queries.cluster_description(self._time.now, asked.client))
        for name in names:
            self._queries.describe_topic(asked.client, name, response.topics.add(name=name))
        if not whole:
            response.gone_topics.extend(
                name for name, at in versions.gone.items() if at > after and self._sees(asked, name)
            )
        self._add_logs(asked, response, after)
        return response

    def _sees(self, asked: ClientRequest, name: str) -> bool:
        return self._authorizer.sees_topic(asked.principal, name)

    def _add_logs(self, asked: ClientRequest, response: admin_pb2.WatchClusterResponse, after: int) -> None:
        for group, watched in self._versions.logs.items():
            log = self._partitions.logs.get(group)
            if watched.version <= after or log is None or not log.leads or not self._sees(asked, log.identity.topic):
                continue
            epoch, high_watermark, log_start = watched.noted
            response.logs.add(
                topic=log.identity.topic,
                partition=log.identity.number,
                leader_epoch=epoch,
                high_watermark=high_watermark,
                log_start_offset=log_start,
                size_bytes=watched.size_bytes,
            )

    # -- events -----------------------------------------------------------------------------------------------

    def after_round(self, replica: PartitionReplica) -> None:
        """Records changes of leader and offsets after a step of a replica's Raft group."""
        if self._time.now > self._watched_until and not len(self._calls):
            self.is_watched = False
            return
        group, raft, versions = replica.group, replica.raft, self._versions
        led_by = (raft.term, raft.leader_id)
        if versions.leaders.get(group) != led_by:
            versions.leaders[group] = led_by
            self._deadline_moved()
            record = self._partitions.record(replica)
            if record is not None:
                versions.changed(record.topic.name)
        if isinstance(replica, Partition) and replica.leads:
            self._note(replica)

    def _note(self, log: Partition) -> None:
        versions, noted = self._versions, (log.leading_term, log.high_watermark, log.log_start_offset)
        watched = versions.logs.get(log.group)
        if watched is None:
            versions.logs[log.group] = WatchedLog(noted, versions.version + 1)
        elif watched.noted != noted:
            watched.noted, watched.version = noted, versions.version + 1
        else:
            return
        versions.sizes_due[log.group] = None
        versions.is_pending = True
        self._deadline_moved()

    def metadata_applied(self, result: ApplyResult) -> None:
        """Records the changes made by a command of the metadata."""
        for topic in result.deleted:
            self._versions.went(topic.name)
        partitions = self._metadata.image.partitions
        for name in {partitions[group].topic.name for group in result.changed_groups}:
            self._versions.changed(name)
        layout = self._metadata.image.layout_version
        if result.brokers_changed or layout != self._layout:
            self._layout = layout
            self._look_at_brokers()

    def _look_at_brokers(self) -> None:
        """Compares the brokers with the state that clients have. Topics that are created or deleted do not change
        it."""
        image = self._metadata.image
        brokers = tuple(
            (each.node_id, each.epoch, each.fenced, each.leaving, each.is_lost) for each in image.brokers.values()
        )
        state = (image.feature_level, brokers, tuple(sorted(image.lost_disks.missing().items())))
        if state != self._brokers:
            self._brokers = state
            self._versions.cluster_changed()

    def controller_changed(self) -> None:
        """Records that the metadata group has another leader, or none."""
        self._versions.cluster_changed()

    def rights_may_have_changed(self) -> None:
        """Restarts all watches if ACLs, users or revocations changed, so that every client is authorized again."""
        image = self._metadata.image
        if self._rights != (image.acls.index, image.credentials.index):
            self.begin_anew()

    def begin_anew(self) -> None:
        """Ends all requests that wait, and starts a new run of versions, so that clients request the whole state.

        Called when the state that clients have may be invalid, or may not have been theirs to see.
        """
        for call in self._calls:
            self._calls.take(call.request_id)
            self._replies.reply(call.request_id, admin_pb2.WatchClusterResponse())
        self._begin_anew()

    def _begin_anew(self) -> None:
        image = self._metadata.image
        self._rights = (image.acls.index, image.credentials.index)
        self._versions = WatchedVersions((self._versions.run + 1) % (1 << 64))
        self.is_watched, self._is_one_behind = True, False
        self._watched_until = self._time.now + WATCHED_FOR_US
        self._layout = image.layout_version
        self._look_at_brokers()
        for log in self._partitions.logs.values():
            self._versions.leaders[log.group] = (log.raft.term, log.raft.leader_id)
            if log.leads:
                self._note(log)

    def raft_group_gone(self, now: int, group: int) -> None:
        self._versions.logs.pop(group, None)
        self._versions.leaders.pop(group, None)


def failed_watch(request: admin_pb2.WatchClusterRequest, problem: errors_pb2.Error) -> admin_pb2.WatchClusterResponse:
    """Returns the response to a request that failed as a whole."""
    return admin_pb2.WatchClusterResponse(error=problem)
