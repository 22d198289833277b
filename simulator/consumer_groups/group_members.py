"""A member of a consumer group in virtual time: the SDK's membership with requests to the shipped node.

It reads its partitions with real fetches, processes records for a random time, commits after that, and follows its
membership's assignments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from google.protobuf.message import Message as ProtoMessage

from quorumlog.chaos.checkers.group_history import Act, Ending, GroupHistory, GroupOperation
from quorumlog.chaos.checkers.history import OperationOutcome
from quorumlog.raft.types import NO_NODE
from quorumlog.sdk.consumer.group_membership import (
    AssignmentChange,
    GroupMembership,
    GroupPartition,
    MemberHeartbeat,
    MembershipConfig,
    MembershipState,
)
from quorumlog.simulator.consumer_groups.kafka_membership import KafkaMembership
from quorumlog.simulator.consumer_groups.member_link import (
    HeartbeatStream,
    MemberLink,
    MemberPort,
    SimCoordinator,
    SimMemberProcess,
)
from quorumlog.simulator.consumer_groups.partition_work import PartitionWork
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.models.coordinator_model import CommitLabel
from quorumlog.simulator.models.members_heard import HeardMembers, Removal
from quorumlog.simulator.world.clients import Answer, Directory, PartitionName, Unanswered
from quorumlog.simulator.world.scheduler import Scheduler, Timer
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode

CALL_PATIENCE_US = 500_000
CALL_TIMEOUT_MS = 400
#: Minimum time between two checks of what must be sent.
SOON_US = 100
#: The same while the coordinator is unknown; its discovery triggers another check.
SEARCH_US = 50_000
#: Processing time once all faults have ended.
QUICK_US = (100, 3_000)


@dataclass(slots=True, frozen=True)
class MemberHabits:
    """Behaviour of members of a group. Times in µs.

    Arguments:
        work_us: duration of one step of work; ``work_records``: its maximum number of records.
        commits: probability that a step of work is followed by a commit.
        slow: probability that it continues with revoked partitions for ``slow_us``.
        lose: probability that an answer is lost.
        zombies: probability that a member's work on a lost partition is committed all the same, up to a session later.
        late: probability that a heartbeat is delayed for seconds, with everything that follows it on its stream.
    """

    session_timeout_ms: int = 3_000
    rebalance_timeout_ms: int = 3_000
    heartbeat_interval_ms: int = 500
    assignor: str = ""
    work_us: tuple[int, int] = (1_000, 30_000)
    work_records: int = 3
    commits: float = 0.5
    slow: float = 0.0
    slow_us: tuple[int, int] = (100_000, 1_000_000)
    lose: float = 0.0
    zombies: float = 0.5
    late: float = 0.0


class SimMember:
    """One process with one member.

    Arguments:
        name: name of the process; ``instance_id``: its static name, or empty.
        topics, pattern: its subscription.
        clock_ppm: deviation of its clock, in millionths.
        is_kafka: it uses a Kafka client's membership, not the SDK's.
    """

    def __init__(
        self,
        name: str,
        group_id: str,
        port: MemberPort,
        scheduler: Scheduler,
        heard: HeardMembers,
        history: GroupHistory,
        habits: MemberHabits,
        topics: tuple[str, ...],
        pattern: str = "",
        instance_id: str = "",
        rack: str = "",
        clock_ppm: int = 0,
        is_kafka: bool = False,
    ) -> None:
        self.name = name
        self.group_id = group_id
        self.instance_id = instance_id
        self.process = SimMemberProcess()
        self.works: dict[GroupPartition, PartitionWork] = {}
        self.link = MemberLink(name, port, scheduler, self.process, habits.lose, habits.late)
        self.directory = Directory(name, port, scheduler, scheduler.stream(f"{name}/directory"))
        self._habits = habits
        self._history = history
        self._scheduler = scheduler
        self._heard = heard
        self._rng = scheduler.stream(name)
        self._clock_rate = 1 + clock_ppm / 1e6
        self._incarnations = self._commits = self._heartbeats = 0
        self._stream: HeartbeatStream | None = None
        self._timer: Timer | None = None
        self._entitled_until_us = self._epoch = 0
        self._committing = self._commit_wanted = False
        self._coordinator = SimCoordinator(group_id, self.link, self._beat)
        self._is_kafka = is_kafka
        kind = KafkaMembership if is_kafka else GroupMembership
        self.membership: GroupMembership | KafkaMembership = kind(
            MembershipConfig(
                group_id=group_id,
                instance_id=instance_id,
                rack=rack,
                assignor=habits.assignor,
                session_timeout_ms=habits.session_timeout_ms,
                rebalance_timeout_ms=habits.rebalance_timeout_ms,
                heartbeat_interval_ms=habits.heartbeat_interval_ms,
            ),
            self._new_id,
            lambda failures: min(0.02 * 2**failures, 0.5) * (0.5 + self._rng.random()),
        )
        self.membership.subscribe(topics, pattern)
        self.membership.join(self._now_s)
        self._beat()

    # -- its life -------------------------------------------------------------------------------------------------

    def subscribe(self, topics: tuple[str, ...], pattern: str = "") -> None:
        """Changes the subscription."""
        self.membership.subscribe(topics, pattern)
        self.process.run(self._beat)

    def heal(self) -> None:
        """Removes all obstacles, and makes it fast: one slow member may have a thousand records to process, and a group
        whose members are late with every revoked partition never settles.
        """
        self.link.lose = self.link.late = 0.0
        self.link.cut(0)
        self.process.resume()
        self._habits = replace(self._habits, work_us=QUICK_US, slow=0.0)

    def crash(self) -> None:
        """Sends SIGKILL: the sockets are closed without a message."""
        self._end_all(Ending.CRASHED)
        self._close()

    def leave(self) -> None:
        """Commits processed records, as far as possible immediately, and leaves."""
        self._send_commit(self._dirty(), self._epoch, self._next_commit())
        self._end_all(Ending.LEFT)
        farewell = self.membership.leave(self._now_s)
        if farewell is not None:
            self._heard.sent(farewell.request)
            if self._stream is not None:
                self._send(farewell)
        self._close()

    def close_history(self) -> None:
        """Adds what it still owns to the history at the end of the run."""
        self._end_all(Ending.OPEN)

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
        if self._timer is not None:
            self._timer.cancel()
        self.process.die()

    @property
    def at_rest(self) -> str:
        """Report, in one line, of the work that the member still waits for; empty if no work is pending."""
        member = self.membership
        if member.state is not MembershipState.MEMBER or member.owned != member.assigned:
            return f"{self.name} ({member.member_id}) is {member.state.value}, owns {member.owned} of {member.assigned}"
        if member.owned != self.works.keys():
            return f"{self.name} works on {sorted(self.works)} and owns {sorted(member.owned)}"
        dirty = [f"{work.name} at {work.position}" for work in self.works.values() if work.dirty]
        return f"{self.name} has not committed {dirty}" if dirty else ""

    # -- time -----------------------------------------------------------------------------------------------------

    @property
    def _now_s(self) -> float:
        return self._scheduler.now * self._clock_rate / 1e6

    def _virtual_us(self, own_s: float) -> int:
        return int(own_s * 1e6 / self._clock_rate)

    def _new_id(self) -> str:
        self._incarnations += 1
        return f"{self.name}.{self._incarnations}"

    # -- heartbeats -----------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        """Sends what is due."""
        member = self.membership
        self._follow(member.check_session(self._now_s))
        if member.overdue(self._now_s):
            self._broken()
            return
        if self._coordinator.node == NO_NODE:
            self._coordinator.ask()
        else:
            if self._stream is None or self._stream.node != self._coordinator.node:
                self._connect(self._coordinator.node)
            while (heartbeat := member.heartbeat(self._now_s)) is not None:
                self._send(heartbeat)
        self._arm()

    def _connect(self, node: int) -> None:
        if self._stream is not None:
            self._stream.close()
            self.membership.unreachable(self._now_s)
        self._stream = HeartbeatStream(node, self.link, self._broken)

    def _broken(self) -> None:
        """Handles the loss of the coordinator or the stream, or a timeout."""
        if self._stream is not None:
            self._stream.close()
        self._stream = None
        self._coordinator.forget()
        self.membership.unreachable(self._now_s)
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        when_s = self.membership.next_at_s()
        if when_s is not None:
            least_us = SOON_US if self._coordinator.node != NO_NODE else SEARCH_US
            when = max(self._virtual_us(when_s) + 1, self._scheduler.now + least_us)
            self._timer = self._scheduler.at(when, lambda: self.process.run(self._beat))

    def _send(self, heartbeat: MemberHeartbeat) -> None:
        assert self._stream is not None
        request, sent_us, node = heartbeat.request, self._scheduler.now, self._stream.node
        self._heartbeats += 1
        request.correlation_id = self._heartbeats

        def served(answer: ProtoMessage) -> None:
            assert isinstance(answer, pb.GroupHeartbeatResponse)
            if not answer.HasField("error") and self.link.port.coordinates(node, self.group_id):
                self._heard.answered(request, sent_us)

        def answered(answer: ProtoMessage) -> None:
            assert isinstance(answer, pb.GroupHeartbeatResponse)
            self._heard_answer(heartbeat, answer)

        self._stream.send(request, answered, served)

    def _heard_answer(self, heartbeat: MemberHeartbeat, answer: pb.GroupHeartbeatResponse) -> None:
        code = answer.error.code
        change = self.membership.heard(heartbeat, answer, self._now_s)
        if self.membership.state is MembershipState.REFUSED:
            if code != ErrorCode.UNRELEASED_INSTANCE_ID:
                raise Violation(f"{self.name} is rejected permanently: {answer.error.message}")
            # Like a user who starts it again.
            self.membership.join(self._now_s)
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._coordinator.learn(answer.error)
        self._follow(change)
        self._beat()

    def _follow(self, change: AssignmentChange) -> None:
        """Applies the membership's change to partitions."""
        for partition in sorted(change.lost):
            self._lose(partition)
        if self.membership.state is MembershipState.MEMBER:
            self._epoch = self.membership.member_epoch
            self._entitled_until_us = self._virtual_us(self.membership.session_ends_s)
        for partition in sorted(change.revoked):
            work = self.works[partition]
            if self._rng.random() < self._habits.slow:
                self.link.later(*self._habits.slow_us, work.revoke)
            else:
                work.revoke()
        for partition in sorted(change.gained):
            self._gain(partition)

    # -- partitions -----------------------------------------------------------------------------------------------

    def _gain(self, partition: GroupPartition) -> None:
        topic = self.membership.topics[partition.topic_id].topic
        work = PartitionWork(self, partition, PartitionName(topic, partition.partition), self.membership.member_id)
        self.works[partition] = work
        self._heard.begins(self.group_id, work.member_id, partition)
        self.read_committed(work)

    def _lose(self, partition: GroupPartition) -> None:
        work = self.works.get(partition)
        if work is None:
            return
        self._end(work, Ending.LOST)
        self._commit_late(work)

    def gave_up(self, work: PartitionWork) -> None:
        """Completes the revocation of a partition after its last work."""
        self._end(work, Ending.REVOKED)
        self._commit_late(work)
        self._follow(self.membership.release([work.partition]))
        self._beat()

    def _end_all(self, ending: Ending) -> None:
        for work in list(self.works.values()):
            self._end(work, ending)

    def _end(self, work: PartitionWork, ending: Ending) -> None:
        """Ends the ownership of a partition: it lasts until the end of the session."""
        del self.works[work.partition]
        self._heard.ends(self.group_id, work.member_id, work.partition)
        work.end(ending)
        until_us = min(self._scheduler.now, self._owned_until_us(work))
        removed = self._heard.removals.get((self.group_id, work.member_id))
        if removed is not None and removed.why is Removal.OVERDUE and removed.at_us >= work.since_us:
            ending = Ending.OVERDUE
        self._record(work, Act.OWN, work.since_us, until_us=max(until_us, work.since_us), ending=ending)

    def _owned_until_us(self, work: PartitionWork) -> int:
        """Returns until when it owns a partition: by its own clock; as Kafka's clients do not learn the duration of
        their sessions, theirs lasts until the log removes the member.
        """
        if not self._is_kafka:
            return self._entitled_until_us
        removed = self._heard.removals.get((self.group_id, work.member_id))
        is_out = removed is not None and removed.at_us >= work.since_us
        return removed.at_us if removed is not None and is_out else self._scheduler.now

    def still_owns(self, work: PartitionWork) -> bool:
        """True if the member may continue with it, by its own clock."""
        self._follow(self.membership.check_session(self._now_s))
        return work.ended is None

    def work_time_us(self) -> int:
        """Returns the duration of the next work."""
        return self._rng.randint(*self._habits.work_us)

    def work_size(self) -> int:
        """Returns the number of records of the next work."""
        return self._rng.randint(1, self._habits.work_records)

    # -- committed offsets ------------------------------------------------------------------------------------------

    def read_committed(self, work: PartitionWork) -> None:
        """Reads the group's committed offset, until there is an answer."""
        if work.ended is not None or work.revoked:
            return
        node, since_us = self._coordinator.node, self._scheduler.now
        if node == NO_NODE:
            self._coordinator.ask()
            self.link.later(20_000, 120_000, lambda: self.read_committed(work))
            return
        request = pb.FetchOffsetsRequest(
            group_id=self.group_id,
            member_id=self.membership.member_id,
            member_epoch=self.membership.member_epoch,
            topics=[pb.TopicPartitions(topic_id=work.partition.topic_id, partitions=[work.partition.partition])],
            timeout_ms=CALL_TIMEOUT_MS,
        )

        def answered(answer: ProtoMessage | Unanswered) -> None:
            if not isinstance(answer, pb.FetchOffsetsResponse) or answer.HasField("error"):
                self._refused(answer)
                self.link.later(20_000, 120_000, lambda: self.read_committed(work))
            elif self.still_owns(work):
                work.begin_at(answer.offsets[0].offset if answer.offsets else -1, since_us)

        self.link.ask(node, request, answered, CALL_PATIENCE_US)

    def _refused(self, answer: ProtoMessage | Unanswered) -> None:
        """Handles a call's failure, which may name another coordinator."""
        if isinstance(answer, Unanswered):
            self._coordinator.forget()
            self._coordinator.ask()
        elif isinstance(answer, pb.FetchOffsetsResponse | pb.CommitOffsetsResponse) and answer.error.code in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ):
            self._coordinator.learn(answer.error)

    def _dirty(self) -> list[PartitionWork]:
        return [work for work in self.works.values() if work.dirty]

    def wants_commit(self, works: list[PartitionWork]) -> None:
        """Commits uncommitted work: at random, or always if there are urgent ones."""
        if works or self._rng.random() < self._habits.commits:
            self._commit()
        else:
            self.link.later(100_000, 300_000, self._commit)

    def _commit(self) -> None:
        """Commits all processed records; only one commit is under way at a time."""
        if self._committing:
            self._commit_wanted = True
            return
        self._follow(self.membership.check_session(self._now_s))
        works = self._dirty()
        requested = [(work, work.position) for work in works]
        number = self._next_commit()
        self._committing = self._send_commit(
            works, self._epoch, number, lambda answer: self._committed(requested, answer)
        )
        if works and not self._committing:
            self.link.later(20_000, 120_000, self._commit)
            for work in works:
                if work.revoked:
                    self.link.later(20_000, 120_000, work.give_up)

    def _commit_late(self, work: PartitionWork) -> None:
        """Sends a commit of the member's work when it may no longer own the partition: it was long in flight, or is a
        duplicate.
        """
        if work.position <= 0 or self._rng.random() >= self._habits.zombies:
            return
        epoch, number = self._epoch, self._next_commit()

        def send() -> None:
            self._send_commit([work], epoch, number)

        self.link.later(0, 1_000 * self._habits.session_timeout_ms, send)

    def _next_commit(self) -> int:
        self._commits += 1
        return self._commits

    def _send_commit(
        self, works: list[PartitionWork], epoch: int, number: int, done: Answer = lambda answer: None
    ) -> bool:
        """Commits the work on some partitions; returns False if no coordinator is known."""
        node, since_us = self._coordinator.node, self._scheduler.now
        if node == NO_NODE:
            self._coordinator.ask()
        if node == NO_NODE or not works:
            return False
        requested = {work.partition: (work, work.position) for work in works}
        label = CommitLabel(works[0].member_id, epoch, number)
        request = pb.CommitOffsetsRequest(
            group_id=self.group_id,
            member_id=label.member,
            member_epoch=label.epoch,
            timeout_ms=CALL_TIMEOUT_MS,
            number=0 if self._is_kafka else number,
        )
        for partition, (_, position) in requested.items():
            request.offsets.add(
                topic_id=partition.topic_id,
                partition=partition.partition,
                offset=position,
                leader_epoch=-1,
                metadata=str(label),
            )
        open_commits = dict(requested)

        def settle(partition: GroupPartition, outcome: OperationOutcome) -> None:
            work, position = open_commits.pop(partition)
            if outcome is not OperationOutcome.OK and self._is_nobodys(work, since_us):
                # Work that `note` has left out. If it were stored, the model of the coordinator would detect it.
                return
            self._record(work, Act.COMMIT, since_us, offset=position, outcome=outcome, number=number)

        def served(answer: ProtoMessage) -> None:
            """Records the result as it is stored, whether or not the member is notified."""
            assert isinstance(answer, pb.CommitOffsetsResponse)
            for partition in list(open_commits):
                settle(partition, _outcome(answer, partition))

        def over() -> None:
            for partition in list(open_commits):
                settle(partition, OperationOutcome.INFO)

        self.link.ask(node, request, done, CALL_PATIENCE_US, served)
        self._scheduler.after(CALL_PATIENCE_US, over)
        return True

    def _committed(self, asked: list[tuple[PartitionWork, int]], answer: ProtoMessage | Unanswered) -> None:
        self._committing = False
        if not isinstance(answer, pb.CommitOffsetsResponse) or answer.HasField("error"):
            self._refused(answer)
        else:
            for work, position in asked:
                if _outcome(answer, work.partition) is OperationOutcome.OK:
                    work.committed = max(work.committed, position)
        again = self._commit_wanted or any(work.dirty for work in self.works.values())
        self._commit_wanted = False
        for work, _ in asked:
            if work.revoked:
                work.give_up()
        if again:
            self.link.later(5_000, 100_000, self._commit)

    # -- history ----------------------------------------------------------------------------------------------------

    def note(self, work: PartitionWork, act: Act, since_us: int, offset: int, end: int = -1) -> None:
        """Records work in the history, except for work of a removed Kafka member that has not been notified: it belongs
        to no owner, its commits are rejected, and others repeat it.
        """
        if not self._is_nobodys(work, self._scheduler.now):
            self._record(work, act, since_us, offset=offset, end=end)

    def _is_nobodys(self, work: PartitionWork, at_us: int) -> bool:
        """True if work or a commit at some time is that of a Kafka member that has been removed."""
        return self._is_kafka and self._owned_until_us(work) < at_us

    def _record(
        self,
        work: PartitionWork,
        act: Act,
        since_us: int,
        *,
        until_us: int | None = None,
        offset: int = -1,
        end: int = -1,
        outcome: OperationOutcome = OperationOutcome.OK,
        ending: Ending = Ending.OPEN,
        number: int = 0,
    ) -> None:
        until_us = self._scheduler.now if until_us is None else until_us
        part = part_name(work.name.topic, work.partition.partition, work.partition.topic_id)
        place = (self.group_id, part, work.member_id)
        self._history.add(GroupOperation(*place, act, since_us, until_us, outcome, offset, end, ending, number))


def part_name(topic: str, number: int, topic_id: bytes) -> str:
    """Returns the history's name of a partition: a topic that is deleted and created again is another one."""
    return f"{topic}-{number}/{topic_id.hex()[:6]}"


def _outcome(answer: pb.CommitOffsetsResponse, partition: GroupPartition) -> OperationOutcome:
    """Returns the outcome of one partition in an answer."""
    errors = [answer.error] if answer.HasField("error") else []
    errors += [
        result.error
        for result in answer.results
        if GroupPartition(result.topic_id, result.partition) == partition and result.HasField("error")
    ]
    if not errors:
        return OperationOutcome.OK
    return OperationOutcome.FAIL if all(error.definite for error in errors) else OperationOutcome.INFO
