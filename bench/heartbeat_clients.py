"""Many members of many groups in one process, heartbeats only: ``python -m bench.heartbeat_clients '{"groups": …}'``.

Members run the SDK's own state machine (:class:`GroupMembership`); a few streams to each node carry the heartbeats of
all of them, and nothing is read. Every second a line of JSON reports the progress, until standard input ends.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field

import grpc.aio
import uvloop

from quorumlog.sdk.consumer.group_membership import (
    AssignmentChange,
    GroupMembership,
    MemberHeartbeat,
    MembershipConfig,
    MembershipState,
)
from quorumlog.v1 import errors_pb2, groups_pb2, groups_pb2_grpc

#: Delay before a broken stream is reopened, or a coordinator is looked up again (s).
RETRY_S = 0.5
REPORT_S = 1.0
TICK_S = 0.02
FIND_TIMEOUT_S = 20.0
#: For one process, over all nodes: a stream accepts a bounded number of heartbeats that wait for news.
MEMBERS_PER_STREAM = 150


@dataclass(slots=True, frozen=True)
class Clients:
    """The configuration of one process.

    Arguments:
        first_group, groups, members: numbers of its groups, and members of each.
        join_per_s: number of members that join per second.
    """

    bootstrap: str
    topic: str
    partitions: int
    first_group: int
    groups: int
    members: int
    session_ms: int
    join_per_s: float


@dataclass(slots=True)
class HeartbeatProgress:
    """A line of JSON.

    Arguments:
        joined: members known to a coordinator.
        settled: groups whose members own all partitions.
        answered: heartbeats that were answered without an error, from the start.
        errors: rejections by name, and broken streams.
        lost: number of times that a member lost partitions.
    """

    joined: int = 0
    settled: int = 0
    answered: int = 0
    lost: int = 0
    errors: dict[str, int] = field(default_factory=dict)


def group_name(number: int) -> str:
    """Returns the name of a group."""
    return f"group-{number:05d}"


class _Stream:
    """Heartbeats of some members to one node; reopened when it breaks."""

    def __init__(self, stub: groups_pb2_grpc.GroupsAsyncStub, crowd: _Crowd) -> None:
        self._stub = stub
        self._crowd = crowd
        self._outgoing: asyncio.Queue[groups_pb2.GroupHeartbeatRequest] = asyncio.Queue()
        self._waiting: dict[int, tuple[_Member, MemberHeartbeat]] = {}

    def send(self, member: _Member, heartbeat: MemberHeartbeat) -> None:
        """Sends a heartbeat; the crowd receives its answer."""
        heartbeat.request.correlation_id = number = next(self._crowd.numbers)
        self._waiting[number] = member, heartbeat
        self._outgoing.put_nowait(heartbeat.request)

    async def run(self) -> None:
        """Carries heartbeats and answers, permanently."""
        while True:
            call = self._stub.Heartbeat()
            writing = asyncio.create_task(self._write(call))
            try:
                async for response in call:
                    waiting = self._waiting.pop(response.correlation_id, None)
                    if waiting is not None:
                        self._crowd.heard(*waiting, response)
            except grpc.aio.AioRpcError as error:
                self._crowd.errors[error.code().name] += 1
            writing.cancel()
            self._outgoing = asyncio.Queue()
            broken, self._waiting = self._waiting, {}
            await asyncio.sleep(RETRY_S)
            await self._crowd.find()
            for member, heartbeat in broken.values():
                self._crowd.unanswered(member, heartbeat)

    async def _write(self, call: grpc.aio.StreamStreamCall) -> None:
        while True:
            await call.write(await self._outgoing.get())


class _Node:
    """One node, and the streams to it."""

    def __init__(self, address: str, streams: int, crowd: _Crowd) -> None:
        self.stub = groups_pb2_grpc.GroupsStub(grpc.aio.insecure_channel(address))
        self.streams = [_Stream(self.stub, crowd) for _ in range(streams)]

    def send(self, member: _Member, heartbeat: MemberHeartbeat) -> None:
        """Sends a heartbeat on the member's stream."""
        self.streams[member.number % len(self.streams)].send(member, heartbeat)


@dataclass(slots=True, eq=False)
class _Member:
    number: int
    group: str
    membership: GroupMembership
    looked_at_s: float | None = None


class _Crowd:
    """All members of this process."""

    def __init__(self, task: Clients) -> None:
        self.progress = HeartbeatProgress()
        #: Numbers of heartbeats, over all streams.
        self.numbers = itertools.count(1)
        self._task = task
        self.errors: Counter[str] = Counter()
        streams = -(-task.groups * task.members // MEMBERS_PER_STREAM)
        self._nodes = {address: _Node(address, streams, self) for address in task.bootstrap.split(",")}
        self._homes: dict[str, _Node] = {}
        self._moved = False
        self._timers: list[tuple[float, int]] = []
        self._members = [
            _Member(number, group_name(task.first_group + number % task.groups), self._membership(number))
            for number in range(task.groups * task.members)
        ]

    def _membership(self, number: int) -> GroupMembership:
        task = self._task
        config = MembershipConfig(
            group_id=group_name(task.first_group + number % task.groups),
            session_timeout_ms=task.session_ms,
        )
        made = GroupMembership(config, lambda: f"member-{number}-{time.monotonic_ns()}", lambda failures: RETRY_S)
        made.subscribe([task.topic])
        return made

    async def run(self) -> None:
        """Joins, and continues until standard input ends."""
        await self.find()
        running = [asyncio.create_task(each.run()) for node in self._nodes.values() for each in node.streams]
        running += [asyncio.create_task(self._join()), asyncio.create_task(self._tick())]
        running.append(asyncio.create_task(self._report()))
        ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.buffer.read)
        done, _ = await asyncio.wait([ended, *running], return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()

    async def find(self) -> None:
        """Looks up the coordinators, until every group has one."""
        names = [group_name(self._task.first_group + number) for number in range(self._task.groups)]
        deadline = time.monotonic() + FIND_TIMEOUT_S
        while True:
            for node in self._nodes.values():
                try:
                    found = await node.stub.FindCoordinators(
                        groups_pb2.FindCoordinatorsRequest(group_ids=names), timeout=RETRY_S * 4
                    )
                except grpc.aio.AioRpcError:
                    continue
                homes = {
                    one.group_id: self._nodes[f"{one.host}:{one.port}"]
                    for one in found.coordinators
                    if one.node_id >= 0
                }
                if len(homes) == len(names):
                    self._homes = homes
                    return
            if time.monotonic() > deadline:
                raise TimeoutError(f"not every group has a coordinator after {FIND_TIMEOUT_S:g} s")
            await asyncio.sleep(RETRY_S)

    async def _join(self) -> None:
        began = time.monotonic()
        for place, member in enumerate(self._members):
            due = began + place / self._task.join_per_s
            if due > time.monotonic():
                await asyncio.sleep(due - time.monotonic())
            member.membership.join(time.monotonic())
            self._send_or_wait(member)
        await asyncio.Event().wait()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            if self._moved:
                self._moved = False
                await self.find()
            now = time.monotonic()
            while self._timers and self._timers[0][0] <= now:
                due, number = heapq.heappop(self._timers)
                member = self._members[number]
                if due != member.looked_at_s:
                    continue
                member.looked_at_s = None
                late = member.membership.overdue(now)
                if late is not None:
                    self.errors["overdue"] += 1
                    member.membership.unanswered(late, now)
                self._lose(member.membership.check_session(now))
                self._send_or_wait(member)

    def _send_or_wait(self, member: _Member) -> None:
        heartbeat = member.membership.heartbeat(time.monotonic())
        if heartbeat is not None:
            self._homes[member.group].send(member, heartbeat)
        due = member.membership.next_at_s()
        if due is not None and (member.looked_at_s is None or due < member.looked_at_s):
            member.looked_at_s = due
            heapq.heappush(self._timers, (due, member.number))

    def heard(self, member: _Member, heartbeat: MemberHeartbeat, response: groups_pb2.GroupHeartbeatResponse) -> None:
        """Handles an answer, releases revoked partitions immediately, and continues."""
        if response.HasField("error"):
            self.errors[errors_pb2.ErrorCode.Name(response.error.code)] += 1
            self._moved = True
        else:
            self.progress.answered += 1
        change = member.membership.heard(heartbeat, response, time.monotonic())
        self._lose(change)
        if change.revoked:
            member.membership.release(change.revoked)
        self._send_or_wait(member)

    def unanswered(self, member: _Member, heartbeat: MemberHeartbeat) -> None:
        """Handles a broken stream."""
        member.membership.unanswered(heartbeat, time.monotonic())
        self._send_or_wait(member)

    def _lose(self, change: AssignmentChange) -> None:
        self.progress.lost += bool(change.lost)

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            owned: Counter[str] = Counter()
            joined = 0
            for member in self._members:
                joined += member.membership.state is MembershipState.MEMBER
                owned[member.group] += len(member.membership.owned & member.membership.assigned)
            self.progress.joined = joined
            self.progress.settled = sum(count == self._task.partitions for count in owned.values())
            self.progress.errors = dict(self.errors)
            print(json.dumps(asdict(self.progress)), flush=True)


async def _run(task: Clients) -> None:
    await _Crowd(task).run()


def main() -> None:
    """Runs the members given as JSON."""
    uvloop.run(_run(Clients(**json.loads(sys.argv[1]))))


if __name__ == "__main__":
    main()
