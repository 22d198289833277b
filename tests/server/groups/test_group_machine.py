"""Members that behave like clients, in any order of events: at most one of them has a partition at any time (I13), and
an undisturbed group converges to equal shares.

Answers are lost, heartbeats are late or are decided again after waiting, clients crash or are slow to revoke, and
another replica takes over as the coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from group_samples import GROUP, ORIGIN, Coordinator, Topics, request
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from quorumlog.server.groups.draft import Draft
from quorumlog.server.groups.heartbeat_decisions import heartbeats
from quorumlog.server.groups.member import PartitionId
from quorumlog.server.groups.member_changes import expire_rebalance, expire_session
from quorumlog.server.groups.periodic_checks import topics_changed
from quorumlog.server.groups.records import partitions_of
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode

MEMBERS = 4


@dataclass
class Process:
    """A client: what it has, what it is to give up, and the last heartbeat that it sent."""

    member_id: str
    instance: str = ""
    epoch: int = 0
    owned: set[PartitionId] = field(default_factory=set)
    to_revoke: set[PartitionId] = field(default_factory=set)
    sent: int = 0
    is_unanswered: bool = False
    is_new_stream: bool = True

    def heartbeat(self) -> pb.GroupHeartbeatRequest:
        """Returns the next heartbeat; it is full if the previous one is unanswered, and on a new stream."""
        self.sent += 1
        full = self.is_unanswered or self.is_new_stream
        self.is_unanswered, self.is_new_stream = True, False
        return request(
            self.member_id, self.epoch, owned=self.owned, instance=self.instance, full=full, correlation=self.sent
        )

    def take_up(self, answer: pb.GroupHeartbeatResponse) -> None:
        """Applies an answer; only the one to the newest heartbeat counts."""
        if answer.correlation_id != self.sent:
            return
        self.is_unanswered = False
        if answer.HasField("error"):
            if answer.error.code != ErrorCode.UNRELEASED_INSTANCE_ID:
                self.lose()
            return
        self.epoch = answer.member_epoch
        if answer.HasField("assignment"):
            assigned = partitions_of(answer.assignment.topics)
            self.to_revoke = self.owned - assigned
            self.owned |= assigned

    def lose(self) -> None:
        """Stops all work and joins again, as a member that was removed or must assume so.

        Answers to its earlier requests are void: another member may own the partitions that they assign.
        """
        self.owned, self.to_revoke, self.epoch = set(), set(), 0
        self.sent += 1


class GroupMachine(RuleBasedStateMachine):
    """One group, its coordinator, and the network between it and its members."""

    @initialize(partitions=st.integers(1, 6))
    def start(self, partitions: int) -> None:
        self.topics = Topics(t=partitions)
        self.coordinator = Coordinator(self.topics)
        self.processes: dict[str, Process] = {}
        self.requests: list[pb.GroupHeartbeatRequest] = []
        self.parked: dict[str, pb.GroupHeartbeatRequest] = {}
        self.newest: dict[str, int] = {}
        self.answers: list[pb.GroupHeartbeatResponse] = []
        self.gone: list[str] = []
        self.made = 0

    # -- the coordinator ----------------------------------------------------------------------------------------------

    def decide(self, batch: list[pb.GroupHeartbeatRequest]) -> None:
        """Decides as a node does: late ones are dropped, a newer one supersedes one that waits."""
        fresh = []
        for one in batch:
            if one.correlation_id > self.newest.get(one.member_id, 0):
                self.newest[one.member_id] = one.correlation_id
                self.parked.pop(one.member_id, None)
                fresh.append(one)
        self._decide(fresh)

    def _decide(self, batch: list[pb.GroupHeartbeatRequest]) -> None:
        def decision(draft: Draft) -> list[pb.GroupHeartbeatResponse | None]:
            return heartbeats(draft, [(one, ORIGIN) for one in batch])

        for one, answer in zip(batch, self.coordinator.decide(decision), strict=True):
            if answer is None:
                self.parked[one.member_id] = one
            else:
                self.parked.pop(one.member_id, None)
                self.answers.append(answer)

    @precondition(lambda self: self.requests)
    @rule(count=st.integers(1, 4), late=st.booleans())
    def requests_arrive(self, count: int, late: bool) -> None:
        """Decides the oldest requests, or the newest: those of two streams overtake each other."""
        batch = self.requests[-count:] if late else self.requests[:count]
        self.requests = self.requests[:-count] if late else self.requests[count:]
        self.decide(batch)

    @precondition(lambda self: self.parked)
    @rule()
    def waiting_ones_are_decided_on_again(self) -> None:
        self._decide(list(self.parked.values()))

    @rule()
    def another_replica_takes_over(self) -> None:
        self.coordinator.restart()
        self.requests, self.parked, self.newest = [], {}, {}
        for process in self.processes.values():
            process.is_new_stream = True

    # -- members ------------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.processes) < MEMBERS)
    @rule(static=st.booleans())
    def a_process_starts(self, static: bool) -> None:
        self.made += 1
        taken = {process.instance for process in self.processes.values()}
        instance = "static" if static and "static" not in taken else ""
        self.processes[f"m{self.made}"] = Process(f"m{self.made}", instance)

    @precondition(lambda self: self.processes)
    @rule(answered=st.booleans())
    def a_round_passes(self, answered: bool) -> None:
        """All members send a heartbeat; if ``answered``, all of them receive their answers."""
        self.decide([process.heartbeat() for process in self.processes.values()])
        while answered and self.answers:
            answer = self.answers.pop(0)
            if answer.member_id in self.processes:
                self.processes[answer.member_id].take_up(answer)

    @rule()
    def all_give_up(self) -> None:
        for process in self.processes.values():
            process.owned -= process.to_revoke
            process.to_revoke = set()

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def a_member_sends_a_heartbeat(self, data: st.DataObject) -> None:
        self.requests.append(self._any(data).heartbeat())

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def an_answer_arrives(self, data: st.DataObject) -> None:
        answer = self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1)))
        if answer.member_id in self.processes:
            self.processes[answer.member_id].take_up(answer)

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def a_stream_breaks(self, data: st.DataObject) -> None:
        """Answers on it are lost; what was sent on it may still arrive, after what is sent on the next."""
        process = self._any(data) if self.processes else None
        if process is not None:
            self.answers = [answer for answer in self.answers if answer.member_id != process.member_id]
            process.is_new_stream = True

    @precondition(lambda self: any(process.to_revoke for process in self.processes.values()))
    @rule(data=st.data())
    def a_member_gives_up(self, data: st.DataObject) -> None:
        process = data.draw(st.sampled_from([one for one in self.processes.values() if one.to_revoke]))
        process.owned -= process.to_revoke
        process.to_revoke = set()

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), epoch=st.sampled_from([-1, -2]))
    def a_member_leaves(self, data: st.DataObject, epoch: int) -> None:
        process = self._any(data)
        process.lose()
        del self.processes[process.member_id]
        leaving = process.heartbeat()
        leaving.ClearField("owned")
        leaving.member_epoch = epoch if process.instance else -1
        self.requests.append(leaving)
        self.gone.append(process.member_id)

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def a_process_crashes(self, data: st.DataObject) -> None:
        process = self._any(data)
        del self.processes[process.member_id]
        self.gone.append(process.member_id)

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def a_session_ends(self, data: st.DataObject) -> None:
        self._expire(data.draw(st.sampled_from(self.gone)))

    @precondition(lambda self: self.processes)
    @rule(data=st.data())
    def a_member_is_silent_for_its_session(self, data: st.DataObject) -> None:
        """The member stops work before the coordinator assigns its partitions to others."""
        process = self._any(data)
        process.lose()
        self.parked.pop(process.member_id, None)
        self._expire(process.member_id)

    @precondition(lambda self: any(process.to_revoke for process in self.processes.values()))
    @rule(data=st.data())
    def a_member_is_slow_to_give_up(self, data: st.DataObject) -> None:
        """The member does not revoke in time: it stops work, and the coordinator removes it."""
        process = data.draw(st.sampled_from([one for one in self.processes.values() if one.to_revoke]))
        epoch, name = process.epoch, process.member_id
        process.lose()
        self.coordinator.decide(lambda draft: expire_rebalance(draft, GROUP, name, epoch))

    @precondition(lambda self: self.partition_count() < 8)
    @rule()
    def the_topic_grows(self) -> None:
        self.topics.put("t", self.partition_count() + 1)
        self.coordinator.decide(lambda draft: topics_changed(draft, GROUP))

    def partition_count(self) -> int:
        topic = self.topics.by_name("t")
        assert topic is not None
        return topic.partitions

    def _any(self, data: st.DataObject) -> Process:
        return data.draw(st.sampled_from(list(self.processes.values())))

    def _expire(self, member_id: str) -> None:
        self.coordinator.decide(lambda draft: expire_session(draft, GROUP, member_id))

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        owners: dict[PartitionId, str] = {}
        for process in getattr(self, "processes", {}).values():
            for partition in process.owned:
                other = owners.setdefault(partition, process.member_id)
                assert other == process.member_id, f"{other} and {process.member_id} both have {partition}"

    def teardown(self) -> None:
        """Asserts that the undisturbed group converges."""
        if not hasattr(self, "processes"):
            return
        self.answers, self.requests = [], []
        for member_id in [*self.gone, *self.parked]:
            if member_id not in self.processes:
                self._expire(member_id)
        self.coordinator.decide(lambda draft: topics_changed(draft, GROUP))
        self.another_replica_takes_over()
        for _ in range(12):
            self.decide([process.heartbeat() for process in self.processes.values()])
            for answer in self.answers:
                self.processes[answer.member_id].take_up(answer)
            self.answers = []
            for process in self.processes.values():
                process.owned -= process.to_revoke
                process.to_revoke = set()
            self.a_partition_has_one_owner()
        if GROUP in self.coordinator.table.groups:
            self._at_rest()

    def _at_rest(self) -> None:
        group = self.coordinator.group
        assert group.members.keys() == self.processes.keys()
        assert group.state == (pb.GROUP_STABLE if self.processes else pb.GROUP_EMPTY)
        shares = [process.owned for process in self.processes.values()]
        assert sum(map(len, shares)) == (self.partition_count() if shares else 0)
        assert max(map(len, shares), default=0) - min(map(len, shares), default=0) <= 1
        for process in self.processes.values():
            assert process.owned == group.targets[process.member_id]


GroupMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
TestGroupMachine = GroupMachine.TestCase
