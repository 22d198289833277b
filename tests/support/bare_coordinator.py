"""One coordinator without a node: the shipped decisions on groups, each of them in force at once, for storms of members
that take milliseconds. It also serves the partitions, whose logs are full from the beginning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from google.protobuf.message import Message as ProtoMessage

from quorumlog.raft.types import Entry, EntryKind
from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.groups.committed_offsets import commit_offsets, fetch_offsets
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.group_table import GroupTable
from quorumlog.server.groups.heartbeat_decisions import heartbeats, nothing_new
from quorumlog.server.groups.member import UNREVOKED
from quorumlog.server.groups.member_changes import RequestContext, expire_rebalance, expire_session
from quorumlog.server.groups.periodic_checks import topics_changed
from quorumlog.server.groups.topic_catalog import TopicInfo
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.server.step.wire_errors import error
from quorumlog.simulator.models.coordinator_model import CoordinatorModel
from quorumlog.simulator.models.members_heard import HeardMembers
from quorumlog.simulator.models.pending_model import TopicIdPartition
from quorumlog.simulator.models.records import text_payload
from quorumlog.simulator.world.clients import Answer, PartitionName
from quorumlog.simulator.world.scheduler import Scheduler, Timer
from quorumlog.v1 import data_plane_pb2 as data
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import Codec, build_batch

DELAY_US = (100, 3_000)
RAFT_GROUP = 1_000
LIMITS = ConsumerGroupLimits(min_session_timeout_ms=100, heartbeat_interval_ms=200)


@dataclass(slots=True)
class Topics:
    """The topics that there are: name to id and number of partitions."""

    infos: dict[str, TopicInfo] = field(default_factory=dict)
    index: int = 1

    def by_name(self, name: str) -> TopicInfo | None:
        return self.infos.get(name)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        return next((info for info in self.infos.values() if info.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self.infos)

    def racks(self, topic_id: bytes) -> Sequence[frozenset[str]]:
        return ()

    def put(self, name: str, partitions: int) -> None:
        """A topic is created, or grows."""
        self.index += 1
        self.infos[name] = TopicInfo(name.encode().ljust(16, b"\0"), name, partitions)


@dataclass(slots=True)
class _Parked:
    """A heartbeat that waits for news."""

    request: pb.GroupHeartbeatRequest
    reply: Callable[[ProtoMessage], None]
    stream: int


class BareCoordinator:
    """Implements what members ask of nodes.

    Arguments:
        records: of each partition.

    Attributes:
        model: judges each decision.
        old_members: members whose id starts so repeat no version of their assignment, as older clients.
    """

    node_ids = (1,)

    def __init__(self, scheduler: Scheduler, topics: Topics, records: int) -> None:
        self.topics = topics
        self.records = records
        self.heard = HeardMembers()
        self.model = CoordinatorModel(RAFT_GROUP, self.heard, lambda partition: records)
        self.table = GroupTable()
        self.old_members: tuple[str, ...] = ()
        self._scheduler = scheduler
        self._rng = scheduler.stream("coordinator")
        self._index = self._streams = 0
        self._lanes: dict[str, int] = {}
        self._parked: dict[tuple[str, str], _Parked] = {}
        self._newest: dict[tuple[str, str], int] = {}
        self._sessions: dict[tuple[str, str], Timer] = {}
        self._entries: dict[int, bytes] = {}

    # -- the port ---------------------------------------------------------------------------------------------------

    def request(
        self,
        client: str,
        node: int,
        message: ProtoMessage,
        answered: Answer,
        served: Callable[[ProtoMessage], None] | None = None,
        stream: int = 0,
    ) -> None:
        """Carries a request there and its answer back."""

        def reply(answer: ProtoMessage) -> None:
            if served is not None:
                served(answer)
            self._scheduler.after(self._rng.randint(*DELAY_US), lambda: answered(answer))

        self._arrive(client, lambda: self._serve(message, reply, stream))

    def _arrive(self, client: str, action: Callable[[], None]) -> None:
        when = max(self._scheduler.now + self._rng.randint(*DELAY_US), self._lanes.get(client, 0) + 1)
        self._lanes[client] = when
        self._scheduler.at(when, action)

    def open_stream(self, node: int) -> int:
        """Gives it a number."""
        self._streams += 1
        return self._streams

    def close_stream(self, client: str, node: int, stream: int) -> None:
        """Heartbeats on it are no longer answered."""

        def forget() -> None:
            for key in [key for key, parked in self._parked.items() if parked.stream == stream]:
                del self._parked[key]

        self._arrive(client, forget)

    def entries_served(
        self, node: int, name: PartitionName, group: int, request: data.FetchRequest, result: data.FetchResult
    ) -> None:
        """Nothing to judge: the logs are fixed."""

    def coordinates(self, node: int, group_id: str) -> bool:
        """There is one."""
        return True

    # -- requests -----------------------------------------------------------------------------------------------------

    def _serve(self, message: ProtoMessage, reply: Callable[[ProtoMessage], None], stream: int) -> None:
        if isinstance(message, data.MetadataRequest):
            reply(self._metadata())
        elif isinstance(message, data.FetchRequest):
            reply(self._fetch(message))
        elif isinstance(message, pb.FindCoordinatorsRequest):
            found = pb.GroupCoordinator(group_id=message.group_ids[0], node_id=1, leader_epoch=1)
            reply(pb.FindCoordinatorsResponse(coordinators=[found]))
        elif isinstance(message, pb.GroupHeartbeatRequest):
            self._heartbeat(_Parked(message, reply, stream))
        elif isinstance(message, pb.FetchOffsetsRequest):
            reply(fetch_offsets(self._draft(), message))
        else:
            assert isinstance(message, pb.CommitOffsetsRequest)
            draft = self._draft()
            answer = commit_offsets(draft, message)
            self._decide(draft)
            reply(answer)

    def _metadata(self) -> data.MetadataResponse:
        response = data.MetadataResponse()
        for name, info in self.topics.infos.items():
            topic = response.topics.add(name=name, topic_id=info.topic_id)
            for number in range(info.partitions):
                topic.partitions.add(partition=number, group_id=1, leader=1, leader_epoch=1, replicas=[1])
        return response

    def _fetch(self, request: data.FetchRequest) -> data.FetchResponse:
        wanted = request.partitions[0]
        first = wanted.fetch_offset
        result = data.FetchResult(topic_id=wanted.topic_id, partition=wanted.partition, high_watermark=self.records)
        result.entries.extend(self._entry(place) for place in range(first, min(first + 5, self.records)))
        return data.FetchResponse(results=[result])

    def _entry(self, offset: int) -> bytes:
        if offset not in self._entries:
            batch = build_batch(
                text_payload([str(offset)]), record_count=1, codec=Codec.NONE, base_timestamp_ms=0, max_timestamp_ms=0
            )
            self._entries[offset] = GroupSealer(1).batch(batch, offset, 0, False)(offset + 1, 1, 0).data
        return self._entries[offset]

    def _draft(self) -> Draft:
        return Draft(self.table, self.topics, LIMITS, 1_700_000_000_000 + self._scheduler.now // 1_000)

    # -- heartbeats ---------------------------------------------------------------------------------------------------

    def _heartbeat(self, parked: _Parked) -> None:
        request = parked.request
        if request.member_id.startswith(self.old_members):
            request.assignment_version = 0
        key = (request.group_id, request.member_id)
        if request.correlation_id < self._newest.get(key, 0):
            return
        self._newest[key] = request.correlation_id
        waiting = self._parked.pop(key, None)
        if waiting is not None:
            self._nothing_new(key, waiting)
        self._restart_session(key, request)
        self._judge([(key, parked)])
        self._scheduler.after(request.max_wait_ms * 1_000, lambda: self._waited(key, parked))

    def _judge(self, waiting: list[tuple[tuple[str, str], _Parked]]) -> None:
        """Decides heartbeats, and then all that wait in groups that have changed, until nothing changes."""
        draft = self._draft()
        answers = heartbeats(draft, [(parked.request, RequestContext()) for _, parked in waiting])
        changed = self._decide(draft)
        for (key, parked), answer in zip(waiting, answers, strict=True):
            if answer is None:
                self._parked[key] = parked
            else:
                parked.reply(answer)
        self._wake(changed)

    def _wake(self, changed: set[str]) -> None:
        again = [(key, parked) for key, parked in self._parked.items() if key[0] in changed]
        if again:
            for key, _ in again:
                del self._parked[key]
            self._judge(again)

    def _waited(self, key: tuple[str, str], parked: _Parked) -> None:
        if self._parked.get(key) is parked:
            del self._parked[key]
            self._nothing_new(key, parked)

    def _nothing_new(self, key: tuple[str, str], parked: _Parked) -> None:
        group = self.table.groups.get(key[0])
        if group is not None and key[1] in group.members:
            parked.reply(nothing_new(group, parked.request, LIMITS))

    def fail_over(self) -> None:
        """Another replica leads: it has what is in the log, and nothing that members have sent. All sessions start
        again, and waiting callers are notified to look for it."""
        self._newest.clear()
        parked, self._parked = self._parked, {}
        for each in parked.values():
            moved = error(ErrorCode.NOT_COORDINATOR, "led elsewhere", definite=True)
            each.reply(pb.GroupHeartbeatResponse(correlation_id=each.request.correlation_id, error=moved))
        for key in self._sessions:
            timeout_ms = self.table.groups[key[0]].members[key[1]].session_timeout_ms if self._has(key) else 1_000
            self._sessions[key].cancel()
            self._sessions[key] = self._scheduler.after(timeout_ms * 1_000, lambda key=key: self._session_over(key))  # type: ignore[misc]

    def _has(self, key: tuple[str, str]) -> bool:
        return key[0] in self.table.groups and key[1] in self.table.groups[key[0]].members

    # -- timers -------------------------------------------------------------------------------------------------------

    def _restart_session(self, key: tuple[str, str], request: pb.GroupHeartbeatRequest) -> None:
        timer = self._sessions.pop(key, None)
        if timer is not None:
            timer.cancel()
        if request.member_epoch != -1:
            timeout_ms = request.session_timeout_ms or 1_000
            self._sessions[key] = self._scheduler.after(timeout_ms * 1_000, lambda: self._session_over(key))

    def _session_over(self, key: tuple[str, str]) -> None:
        draft = self._draft()
        expire_session(draft, *key)
        self._wake(self._decide(draft))

    def _rebalance_over(self, key: tuple[str, str], member_epoch: int) -> None:
        draft = self._draft()
        expire_rebalance(draft, *key, member_epoch)
        self._wake(self._decide(draft))

    def topics_are_other(self) -> None:
        """Looks again what groups read."""
        draft = self._draft()
        for group in list(self.table.groups):
            topics_changed(draft, group)
        self._wake(self._decide(draft))

    # -- the log ------------------------------------------------------------------------------------------------------

    def _decide(self, draft: Draft) -> set[str]:
        command = draft.command()
        if command is None:
            return set()
        before = {
            (group, name): member.member_epoch
            for group, each in self.table.groups.items()
            for name, member in each.members.items()
            if member.state == UNREVOKED
        }
        self._index += 1
        body = command.SerializeToString(deterministic=True)
        sealed: Entry = GroupSealer(RAFT_GROUP).command(body)(self._index, 1, 0)
        assert sealed.kind is EntryKind.COMMAND
        self.model.commit(sealed, self._scheduler.now, 0)
        changed = self.table.apply(command)
        self.model.check_table("the table", self._index, self.table.to_snapshot(self._index))
        for group in sorted(changed & self.table.groups.keys()):
            for name, member in self.table.groups[group].members.items():
                key = (group, name)
                if member.state == UNREVOKED and before.get(key) != member.member_epoch:
                    self._scheduler.after(
                        member.rebalance_timeout_ms * 1_000,
                        lambda key=key, epoch=member.member_epoch: self._rebalance_over(key, epoch),  # type: ignore[misc]
                    )
        return changed

    def end_of(self, partition: TopicIdPartition) -> int:
        """Every log is as long."""
        return self.records
