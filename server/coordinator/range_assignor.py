"""The assignor `range`: each topic's partitions in as many stretches as it has readers (Kafka's RangeAssignor).

Readers have the same place in every topic, so that members with equal subscriptions get the same numbers of topics with
equally many partitions: what joins records by key needs. Static members come first, by their names, so that a restart
changes nobody's place. It does not look at who has what: its definition says it all.
"""

from __future__ import annotations

from quorumlog.server.coordinator.assignment_input import AssignmentInput
from quorumlog.server.coordinator.member import PartitionId


def assign_ranges(problem: AssignmentInput) -> dict[str, set[PartitionId]]:
    """The partitions of each member."""
    assigned: dict[str, set[PartitionId]] = {reader.member_id: set() for reader in problem.readers}
    in_order = sorted(
        problem.readers, key=lambda reader: (not reader.instance_id, reader.instance_id, reader.member_id)
    )
    for topic_id, topic in problem.topics.items():
        readers = [reader for reader in in_order if topic_id in reader.topics]
        if not readers:
            continue
        share, longer = divmod(topic.partitions, len(readers))
        first = 0
        for place, reader in enumerate(readers):
            beyond = first + share + (place < longer)
            assigned[reader.member_id].update((topic_id, number) for number in range(first, beyond))
            first = beyond
    return assigned
