"""Records of classic groups in the coordinator's log: changes only, sorted, so that equal changes are equal bytes."""

from __future__ import annotations

from quorumlog.server.groups.classic.classic_group import ClassicGroup, ClassicMember
from quorumlog.v1 import coordinator_log_pb2, groups_pb2

NOTHING = ClassicGroup()


def change_of(before: ClassicGroup | None, after: ClassicGroup) -> coordinator_log_pb2.ClassicChange:
    """Returns the change from one state of a group to another.

    Arguments:
        before: None if the group was not classic.
    """
    base = before if before is not None else NOTHING
    known_parts = base.assignments if after.generation == base.generation else {}
    return coordinator_log_pb2.ClassicChange(
        header=coordinator_log_pb2.ClassicHeader(
            stage=after.stage,
            generation=after.generation,
            protocol_type=after.protocol_type,
            protocol=after.protocol,
            leader=after.leader,
        ),
        members=[_record(each) for key, each in sorted(after.members.items()) if base.members.get(key) != each],
        removed_members=sorted(base.members.keys() - after.members.keys()),
        assignments=[
            groups_pb2.ClassicAssignment(member_id=key, assignment=part)
            for key, part in sorted(after.assignments.items())
            if known_parts.get(key) != part
        ],
    )


def changed(before: ClassicGroup | None, change: coordinator_log_pb2.ClassicChange) -> ClassicGroup:
    """Returns the group after a change that ``change_of`` made.

    Raises:
        AssertionError: the change is not based on ``before``, or would break an invariant of the group.
    """
    base, header = before if before is not None else NOTHING, change.header
    members, parts = dict(base.members), dict(base.assignments)
    for member_id in change.removed_members:
        del members[member_id]
        parts.pop(member_id, None)
    for record in change.members:
        members[record.member_id] = _member(record)
    if header.generation != base.generation:
        parts.clear()
    for row in change.assignments:
        parts[row.member_id] = row.assignment
    after = ClassicGroup(
        header.stage, header.generation, header.protocol_type, header.protocol, header.leader, members, parts
    )
    after.check()
    if before is not None:
        after.check_follows(before)
    return after


def change_bytes(before: ClassicGroup | None, after: ClassicGroup) -> int:
    """Returns the approximate size of the result of ``change_of`` in bytes, without computing it."""
    base = before if before is not None else NOTHING
    members = sum(
        64 + len(key) + each.size_bytes for key, each in after.members.items() if base.members.get(key) is not each
    )
    parts = sum(len(key) + len(part) for key, part in after.assignments.items() if base.assignments.get(key) != part)
    return 64 + members + parts


def _record(member: ClassicMember) -> coordinator_log_pb2.ClassicGroupMember:
    return coordinator_log_pb2.ClassicGroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.host,
        principal=member.principal,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=[groups_pb2.ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.protocols],
    )


def _member(record: coordinator_log_pb2.ClassicGroupMember) -> ClassicMember:
    return ClassicMember(
        record.member_id,
        record.instance_id,
        record.client_id,
        record.host,
        record.principal,
        record.session_timeout_ms,
        record.rebalance_timeout_ms,
        tuple((row.name, row.metadata) for row in record.protocols),
    )
