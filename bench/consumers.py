"""Many consumers of one group in one process: ``python -m bench.consumers '{"group": …}'``, with :class:`Consumers`.

Standard output gets a line of JSON once every one of them has partitions. Each line on standard input is then a time of
the machine's monotonic clock; it is answered once every member has had a heartbeat answered that it sent after that
time. They stop at the end of standard input.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict, dataclass

import uvloop

from quorumlog.sdk.aio import AsyncConsumer
from quorumlog.sdk.consumer.group_membership import AssignmentChange, GroupMembership, MemberHeartbeat
from quorumlog.v1 import groups_pb2


@dataclass(slots=True, frozen=True)
class Consumers:
    """The configuration of one process."""

    bootstrap: str
    group: str
    topic: str
    members: int
    session_ms: int


@dataclass(slots=True, frozen=True)
class Answered:
    """A line of JSON.

    Arguments:
        after_ms: per member, from the given time until a heartbeat sent after it was answered without an error.
        epochs: member id -> member epoch.
        lost: number of times that any member lost its partitions, since the start.
    """

    after_ms: list[float]
    epochs: dict[str, int]
    lost: int


class _Ears:
    """Observes every answer to members of this process."""

    def __init__(self) -> None:
        self.lost = 0
        self.epochs: dict[str, int] = {}
        self._since_s = float("inf")
        self._heard_s: dict[str, float] = {}
        self._assigned: set[str] = set()
        self._news = asyncio.Event()
        heard = GroupMembership.heard

        def listening(
            membership: GroupMembership,
            heartbeat: MemberHeartbeat,
            response: groups_pb2.GroupHeartbeatResponse,
            now_s: float,
        ) -> AssignmentChange:
            change = heard(membership, heartbeat, response, now_s)
            self.lost += bool(change.lost)
            if not response.HasField("error"):
                self.epochs[membership.member_id] = membership.member_epoch
                if membership.assigned:
                    self._assigned.add(membership.member_id)
                if heartbeat.sent_at_s > self._since_s:
                    self._heard_s.setdefault(membership.member_id, now_s)
                self._news.set()
            return change

        GroupMembership.heard = listening  # type: ignore[method-assign]

    async def all_assigned(self, members: int) -> None:
        """Waits until every member has partitions."""
        while len(self._assigned) < members:
            self._news.clear()
            await self._news.wait()

    async def all_since(self, since_s: float, members: int) -> Answered:
        """Waits until every member has had a heartbeat answered that it sent after a given time."""
        self._since_s = since_s
        self._heard_s.clear()
        while len(self._heard_s) < members:
            self._news.clear()
            await self._news.wait()
        after_ms = [round((heard - since_s) * 1e3, 3) for heard in self._heard_s.values()]
        return Answered(after_ms, self.epochs, self.lost)


async def _run(task: Consumers) -> None:
    ears = _Ears()
    consumers = [
        AsyncConsumer(
            bootstrap_servers=task.bootstrap,
            group_id=task.group,
            session_timeout_ms=task.session_ms,
            enable_auto_commit=False,
            # Nothing is written: vain fetches would only load the nodes.
            fetch_max_wait_ms=10_000,
            client_id=f"consumer-{number}",
        )
        for number in range(task.members)
    ]
    for consumer in consumers:
        await consumer.subscribe([task.topic])
    async with asyncio.TaskGroup() as tasks:
        for consumer in consumers:
            tasks.create_task(_poll(consumer))
        tasks.create_task(_serve(task, ears))


async def _serve(task: Consumers, ears: _Ears) -> None:
    await ears.all_assigned(task.members)
    print("{}", flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        answered = await ears.all_since(int(line) / 1e9, task.members)
        print(json.dumps(asdict(answered)), flush=True)
    raise SystemExit  # An orderly leave of the group would not be observed.


async def _poll(consumer: AsyncConsumer) -> None:
    while True:
        await consumer.poll(timeout_ms=60_000)


def main() -> None:
    """Runs the consumers given as JSON."""
    uvloop.run(_run(Consumers(**json.loads(sys.argv[1]))))


if __name__ == "__main__":
    main()
