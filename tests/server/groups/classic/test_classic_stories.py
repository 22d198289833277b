"""Random histories of classic members, including hostile ones: nothing breaks, every call is answered, and silent
members are removed. The rig asserts that replicas agree after each entry."""

from __future__ import annotations

from dataclasses import dataclass

from classic_rig import GROUP, ClassicRig, code, join_request
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.groups.administration import delete_group, describe, listing
from quorumlog.server.groups.draft import Draft
from quorumlog.v1 import errors_pb2
from quorumlog.v1 import groups_pb2 as pb

NUMBERS = st.sampled_from([-(1 << 31), -1, 0, 1, 2, 3, 4, (1 << 31) - 1])
#: Positions of assigned ids, or ids that no member has.
WHO = st.one_of(st.integers(0, 7), st.sampled_from(["", "stranger", "\0", "x" * 400]))
NAMES = st.sampled_from(["", "", "", "one", "two"])
PROTOCOLS = st.lists(
    st.tuples(st.sampled_from(["range", "sticky", "range", ""]), st.sampled_from([b"", b"m", bytes(400)])), max_size=3
)
JOIN = st.tuples(
    st.just("join"),
    WHO,
    NAMES,
    PROTOCOLS,
    st.sampled_from([-5, 1_000, 3_000]),
    NUMBERS,
    st.booleans(),
    st.booleans(),
    st.sampled_from(["consumer", "consumer", "connect", ""]),
)
SYNC = st.tuples(st.just("sync"), WHO, NAMES, NUMBERS, st.lists(st.tuples(WHO, st.binary(max_size=9)), max_size=3))
BEAT = st.tuples(st.just("beat"), WHO, NAMES, NUMBERS)
LEAVE = st.tuples(st.just("leave"), st.lists(st.tuples(WHO, NAMES), max_size=3))
#: As a correct client: the group's present generation, and assignments for all members.
OBEY = st.tuples(st.just("obey"), st.integers(0, 7))
OTHER = st.one_of(
    st.tuples(st.just("pass"), st.sampled_from([1, 100, 500, 1_500, 4_000])),
    st.tuples(st.just("hang up"), st.integers(0, 30)),
    st.tuples(st.just("fail over")),
    st.tuples(st.just("hold"), st.booleans()),
    st.tuples(st.just("take"), st.booleans()),
    st.tuples(st.just("delete")),
)
STORY = st.lists(st.one_of(JOIN, JOIN, OBEY, OBEY, SYNC, BEAT, LEAVE, OTHER), max_size=40)


@dataclass(eq=False)
class Deletion:
    """An administrator deletes the group."""

    key: str = GROUP

    def decide(self, draft: Draft) -> pb.GroupOutcome:
        """Decides on a draft."""
        return pb.GroupOutcome(error=delete_group(draft, self.key))

    def answer(self, response: Message) -> None:
        """Ignores the response."""

    def refuse(self, problem: errors_pb2.Error) -> None:
        """Ignores the error."""


class Story:
    """A rig that carries out a history."""

    def __init__(self) -> None:
        limits = ConsumerGroupLimits(members=4, classic_group_bytes=1_500, classic_member_bytes=900)
        self.rig = ClassicRig(limits=limits)
        self.calls: list[int] = []

    def who(self, who: int | str) -> str:
        """Returns a member id: as given, or the one assigned at this position, counted from the newest."""
        if isinstance(who, str):
            return who
        given = [
            answer.member_id
            for answer in self.rig.replies.values()
            if isinstance(answer, pb.JoinClassicGroupResponse) and answer.member_id
        ]
        return given[-1 - who] if who < len(given) else ""

    def do(self, what: str, *how: object) -> None:
        """Carries out one event."""
        rig = self.rig
        match what, how:
            case "join", (who, name, protocols, session_ms, rebalance_ms, named_first, can_skip, kind):
                self.calls.append(
                    rig.send(
                        join_request(
                            self.who(who),
                            instance=name,
                            protocols=protocols,
                            session_ms=session_ms,
                            kind=kind,  # type: ignore[arg-type]
                            rebalance_ms=rebalance_ms,
                            named_first=named_first,
                            can_skip=can_skip,  # type: ignore[arg-type]
                        ),
                        wait_ms=8_000,
                    )
                )
            case "sync", (who, name, generation, parts):
                self.sync(self.who(who), generation, {self.who(key): part for key, part in parts}, name)  # type: ignore[arg-type, attr-defined, misc]
            case "beat", (who, name, generation):
                self.calls.append(
                    rig.send(
                        pb.ClassicHeartbeatRequest(
                            group_id=GROUP,
                            member_id=self.who(who),
                            generation=generation,
                            instance_id=name,  # type: ignore[arg-type]
                        )
                    )
                )
            case "leave", (members,):
                rows = [pb.LeavingClassicMember(member_id=self.who(who), instance_id=name) for who, name in members]  # type: ignore[attr-defined]
                self.calls.append(rig.send(pb.LeaveClassicGroupRequest(group_id=GROUP, members=rows)))
            case "obey", (who,):
                self.obey(self.who(who))  # type: ignore[arg-type]
            case "pass", (time_ms,):
                rig.pass_ms(time_ms)  # type: ignore[arg-type]
            case "hang up", (place,):
                if place < len(self.calls):  # type: ignore[operator]
                    rig.hang_up(self.calls[place])  # type: ignore[index]
            case "fail over", ():
                rig.fail_over()
            case "hold", (holds,):
                rig.holds = holds  # type: ignore[assignment]
                if not holds:
                    rig.apply()
                    rig.decide()
            case "delete", ():
                rig.leadership.queue.submit(Deletion())
                rig.decide()
            case "take", (takes,):
                rig.takes = takes  # type: ignore[assignment]

    def obey(self, member_id: str) -> None:
        """Joins or syncs, as is due for the member in its group."""
        group = self.rig.table.groups.get(GROUP)
        classic = group.classic if group is not None else None
        if classic is None or member_id not in classic.members:
            return
        instance_id = classic.members[member_id].instance_id
        if self.rig.state == "PREPARING_REBALANCE":
            self.calls.append(self.rig.join(member_id, instance=instance_id, session_ms=3_000, rebalance_ms=3_000))
        else:
            parts = {key: key.encode() for key in classic.members}
            self.sync(member_id, classic.generation, parts, instance_id)

    def sync(self, member_id: str, generation: int, parts: dict[str, bytes], name: str) -> None:
        if not -(1 << 31) <= generation < 1 << 31:
            return
        self.calls.append(self.rig.sync(member_id, generation, parts, instance_id=name))

    def look(self) -> None:
        """Lists and describes every group."""
        for group in self.rig.table.groups.values():
            listing(group)
            describe(self.rig.draft(), group.group_id, 1)


@settings(max_examples=150, deadline=None)
@given(STORY)
def test_every_story_ends_well(steps: list[tuple[object, ...]]) -> None:
    story = Story()
    rig = story.rig
    for what, *how in steps:
        story.do(str(what), *how)
        story.look()
    rig.takes, rig.holds = True, False
    rig.apply()
    rig.pass_ms(40_000)
    assert not [call for call in story.calls if rig.is_waiting(call)], "a call waits permanently"
    assert rig.leadership.classic.rounds.waiting_bytes == 0
    assert rig.leadership.classic.rounds.named_count == 0
    group = rig.table.groups.get(GROUP)
    assert group is None or group.classic is None or group.classic.is_empty, "silent members stay"
    (member,), generation = rig.form("again")
    assert rig.beat(member, generation) == "NONE"
    assert code(rig.synced(rig.sync(member, generation))) == "NONE"
