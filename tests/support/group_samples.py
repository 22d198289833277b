"""A coordinator without a node for tests of consumer groups: a table, its log, and a second replica of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.group import ConsumerGroup
from quorumlog.server.groups.group_table import GroupTable
from quorumlog.server.groups.heartbeat_decisions import heartbeats
from quorumlog.server.groups.member import PartitionId
from quorumlog.server.groups.records import partition_lists, partitions_of, whole_group
from quorumlog.server.groups.topic_catalog import TopicInfo
from quorumlog.server.step.request_context import RequestContext
from quorumlog.v1 import coordinator_log_pb2
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.wire.topic_names import is_internal

GROUP = "g"
ORIGIN = RequestContext("client", "127.0.0.1")
_Result = TypeVar("_Result")


def topic_id(name: str, life: int = 0) -> bytes:
    """The id of a topic; of a later one under the same name with ``life``."""
    return f"{name}#{life}".encode().ljust(16, b".")


def partitions(name: str, *numbers: int) -> set[PartitionId]:
    """Partitions of a topic."""
    return {(topic_id(name), number) for number in numbers}


class Topics:
    """A catalog that tests change."""

    def __init__(self, **counts: int) -> None:
        self.index = 1
        self._topics: dict[str, TopicInfo] = {}
        self._racks: dict[bytes, Sequence[frozenset[str]]] = {}
        for name, count in counts.items():
            self.put(name, count)

    def put(self, name: str, count: int, *, life: int = 0, racks: Sequence[frozenset[str]] = ()) -> None:
        self.index += 1
        self._topics[name] = TopicInfo(topic_id(name, life), name, count)
        self._racks[topic_id(name, life)] = racks

    def delete(self, name: str) -> None:
        self.index += 1
        del self._topics[name]

    def by_name(self, name: str) -> TopicInfo | None:
        return self._topics.get(name)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        return next((topic for topic in self._topics.values() if topic.topic_id == topic_id), None)

    def names(self) -> Iterator[str]:
        return (name for name in self._topics if not is_internal(name))

    def racks(self, topic_id: bytes) -> Sequence[frozenset[str]]:
        return self._racks.get(topic_id, ())


def request(
    member_id: str,
    epoch: int,
    *,
    owned: Iterable[PartitionId] = (),
    topics: Sequence[str] = ("t",),
    pattern: str = "",
    instance: str = "",
    full: bool = False,
    assignor: str = "",
    rack: str = "",
    group: str = GROUP,
    correlation: int = 0,
    version: int = 0,
) -> pb.GroupHeartbeatRequest:
    """A heartbeat that may wait for news."""
    return pb.GroupHeartbeatRequest(
        correlation_id=correlation,
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        instance_id=instance,
        rack=rack,
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        topics=topics,
        topic_pattern=pattern,
        assignor=assignor,
        owned=partition_lists(owned),
        full=full,
        max_wait_ms=3_000,
        assignment_version=version,
    )


def same_but_version(group: ConsumerGroup | None) -> coordinator_log_pb2.GroupChange | None:
    """A group for comparison between a draft and what its command makes."""
    if group is None:
        return None
    change = whole_group(group)
    change.version = 0
    return change


class Coordinator:
    """Decides, applies what it decided to two replicas, and holds that all three agree."""

    def __init__(self, topics: Topics, limits: ConsumerGroupLimits | None = None) -> None:
        self.topics = topics
        self.limits = limits or ConsumerGroupLimits()
        self.table = GroupTable()
        self.replica = GroupTable()
        self.commands: list[coordinator_log_pb2.GroupCommand] = []
        self.wall_ms = 1_000_000

    @property
    def group(self) -> ConsumerGroup:
        """The group that most tests have."""
        return self.table.groups[GROUP]

    def decide(self, decision: Callable[[Draft], _Result]) -> _Result:
        """Has a decision made, and applied."""
        draft = Draft(self.table, self.topics, self.limits, self.wall_ms, len(self.commands))
        result = decision(draft)
        command = draft.command()
        ids = {*self.table.groups, *((change.group_id for change in command.changes) if command else ())}
        decided = {group_id: same_but_version(draft.group(group_id)) for group_id in ids}
        if command is not None:
            assert command.ByteSize() <= draft.size_bytes + 200 * len(command.changes)
            self.commands.append(command)
            changed = self.table.apply(command)
            assert changed == {change.group_id for change in command.changes}
            assert all(draft.changed(group_id) for group_id in changed)
            self.replica.apply(coordinator_log_pb2.GroupCommand.FromString(command.SerializeToString()))
        assert decided == {group_id: same_but_version(self.table.groups.get(group_id)) for group_id in ids}
        data = self.table.to_snapshot(1)
        assert self.replica.to_snapshot(1) == data
        assert GroupTable.from_snapshot(data)[0].size_bytes == self.table.size_bytes
        return result

    def heartbeats(self, *requests: pb.GroupHeartbeatRequest) -> list[pb.GroupHeartbeatResponse | None]:
        """Decides on heartbeats together."""
        return self.decide(lambda draft: heartbeats(draft, [(one, ORIGIN) for one in requests]))

    def heartbeat(self, one: pb.GroupHeartbeatRequest) -> pb.GroupHeartbeatResponse:
        """Decides on a heartbeat that has news."""
        (answer,) = self.heartbeats(one)
        assert answer is not None, "no news"
        return answer

    def restart(self) -> None:
        """Another replica leads, from a snapshot."""
        data = self.replica.to_snapshot(7)
        self.table, index = GroupTable.from_snapshot(data)
        assert index == 7
        assert self.table.groups == self.replica.groups
        assert self.table.to_snapshot(7) == data
        self.replica, _ = GroupTable.from_snapshot(data)


class Client:
    """A member as a client makes it: it obeys at once, unless a test makes it wait.

    Arguments:
        is_old: it repeats no version of its assignment.
    """

    def __init__(self, coordinator: Coordinator, member_id: str, *, is_old: bool = False, **wishes: object) -> None:
        self.coordinator = coordinator
        self.is_old = is_old
        self.version = 0
        self.member_id = member_id
        self.wishes = wishes
        self.epoch = 0
        self.owned: set[PartitionId] = set()
        self.to_revoke: set[PartitionId] = set()
        self.first_partitions: dict[str, int] = {}

    def beat(self, **changes: object) -> pb.GroupHeartbeatResponse | None:
        """One heartbeat; it takes up the partitions of the answer; ``revoke`` gives up others."""
        (answer,) = self.coordinator.heartbeats(self.request(**changes))
        if answer is not None:
            self.take_up(answer)
        return answer

    def request(self, **changes: object) -> pb.GroupHeartbeatRequest:
        """Its heartbeat as of now."""
        said: dict[str, object] = {"owned": self.owned, "version": self.version, **self.wishes, **changes}
        return request(self.member_id, self.epoch, **said)  # type: ignore[arg-type]

    def take_up(self, answer: pb.GroupHeartbeatResponse) -> None:
        """Takes up an answer."""
        assert not answer.HasField("error"), answer.error.message
        self.epoch = answer.member_epoch
        if answer.HasField("assignment"):
            assigned = partitions_of(answer.assignment.topics)
            self.version = 0 if self.is_old else answer.assignment.version
            self.to_revoke = self.owned - assigned
            self.owned |= assigned
            self.first_partitions = {row.topic: row.first_partitions for row in answer.assignment.topics}

    def revoke(self) -> None:
        """Gives up what it has to."""
        self.owned -= self.to_revoke
        self.to_revoke = set()

    def leave(self, epoch: int = -1) -> pb.GroupHeartbeatResponse:
        """Leaves."""
        self.owned, self.to_revoke = set(), set()
        return self.coordinator.heartbeat(request(self.member_id, epoch, **self.wishes))  # type: ignore[arg-type]


def until_stable(clients: Iterable[Client], rounds: int = 20) -> int:
    """Sends the clients' heartbeats in turn until none changes anything; returns the number of rounds."""
    clients = list(clients)
    for number in range(rounds):
        news = [client.beat() for client in clients]
        for client in clients:
            client.revoke()
        if not any(news):
            return number
    raise AssertionError(f"not stable after {rounds} rounds")
