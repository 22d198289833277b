"""Who leads what in which term: compared before and after something that must not have moved it."""

from __future__ import annotations

from typing import NamedTuple

from quorumlog.sdk import Admin

#: The metadata quorum's name among the partitions.
METADATA = "metadata"


class Leadership(NamedTuple):
    """A leader (None without one), its term, and whether it is the partition's preferred one."""

    leader: int | None
    term: int
    preferred: bool


def leaderships(admin: Admin) -> dict[str, Leadership]:
    """Of every partition, by topic and number, and of the metadata quorum."""
    found = {
        f"{topic.name}-{one.partition}": Leadership(one.leader, one.leader_epoch, one.leader == one.replicas[0])
        for topic in admin.describe_topics()
        for one in topic.partitions
    }
    quorum = admin.describe_quorum()
    # No controller is preferred to another: whoever leads them need not hand over.
    found[METADATA] = Leadership(quorum.leader_id, quorum.leader_epoch, True)
    return found


def differences(before: dict[str, Leadership], now: dict[str, Leadership]) -> list[str]:
    """What is not as it was, in words, of everything that there was before."""
    return [
        f"{name} was led by node {was.leader} in term {was.term}, is now by node {now[name].leader} in term"
        f" {now[name].term}"
        for name, was in before.items()
        if now[name][:2] != was[:2]
    ]
