"""Leaders and terms of all partitions, compared before and after a fault that must not have moved them."""

from __future__ import annotations

from typing import NamedTuple

from quorumlog.sdk import Admin

#: Name of the metadata quorum among the partitions.
METADATA = "metadata"


class Leadership(NamedTuple):
    """A leader (None without one), its term, and True if it is the partition's preferred one."""

    leader: int | None
    term: int
    preferred: bool


def leaderships(admin: Admin) -> dict[str, Leadership]:
    """Returns the leadership of every partition, by topic and number, and of the metadata quorum."""
    found = {
        f"{topic.name}-{one.partition}": Leadership(one.leader, one.leader_epoch, one.leader == one.replicas[0])
        for topic in admin.describe_topics()
        for one in topic.partitions
    }
    quorum = admin.describe_quorum()
    # No controller is preferred: its leader need not hand over.
    found[METADATA] = Leadership(quorum.leader_id, quorum.leader_epoch, True)
    return found


def differences(before: dict[str, Leadership], now: dict[str, Leadership]) -> list[str]:
    """Describes the changes of all earlier leaderships."""
    return [
        f"{name} was led by node {was.leader} in term {was.term}, is now by node {now[name].leader} in term"
        f" {now[name].term}"
        for name, was in before.items()
        if now[name][:2] != was[:2]
    ]
