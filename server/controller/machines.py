"""Machines as failure domains: the replicas of a partition, and its witness, are on distinct machines.

The nodes of one machine crash, lose power and are cut off together. With two replicas of a partition among them, the
loss of one machine could be the loss of a majority. Racks are a preference, machines are a rule. A node without a named
machine is a machine of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import BrokerRecord, machine_of_its_own


def machine_of(brokers: Mapping[int, BrokerRecord], node_id: int) -> str:
    """Returns the machine of a node, registered or not."""
    broker = brokers.get(node_id)
    return machine_of_its_own(node_id) if broker is None else broker.machine


def machines_of(brokers: Mapping[int, BrokerRecord], nodes: Iterable[int]) -> set[str]:
    """Returns the machines of some nodes."""
    return {machine_of(brokers, node) for node in nodes}


def are_apart(brokers: Mapping[int, BrokerRecord], nodes: Sequence[int]) -> bool:
    """True if no two of some nodes share a machine."""
    return len(machines_of(brokers, nodes)) == len(nodes)


def two_on_one_machine(image: MetadataImage, nodes: Sequence[int]) -> str:
    """Returns why a partition cannot have its replicas on some nodes; empty if each is on a machine of its own."""
    first_on: dict[str, int] = {}
    for node in nodes:
        other = first_on.setdefault(machine_of(image.brokers, node), node)
        if other != node:
            machine = machine_of(image.brokers, node)
            return f"nodes {other} and {node} are both on machine {machine}, and would fail together"
    return ""


def crowded_voter(image: MetadataImage, added: Sequence[int], wanted: Sequence[int]) -> str:
    """Returns why voters cannot be added to the metadata quorum: one would share its machine with others while another
    machine could have it. Empty if they can.

    With fewer machines than voters, the voters are spread as evenly as the machines allow. Machines without a running
    node that stays do not count: three voters of which two share a machine survive more than two and one that is down.

    Arguments:
        added: the voters to add.
        wanted: all voters afterwards.
    """
    brokers = image.brokers
    voters = Counter(machine_of(brokers, node) for node in wanted)
    able = {node for node, broker in brokers.items() if not broker.fenced and not broker.leaving}
    for node in added:
        machine = machine_of(brokers, node)
        better = [each for each in sorted(able) if voters[machine_of(brokers, each)] + 2 <= voters[machine]]
        if better:
            others = ", ".join(str(each) for each in sorted(wanted) if each != node and _share(brokers, each, node))
            return (
                f"node {node} is on machine {brokers[node].registration.machine} with voters {others}, and would fail"
                f" together with them: add a node of another machine, for example {better[0]}"
            )
    return ""


def _share(brokers: Mapping[int, BrokerRecord], node: int, other: int) -> bool:
    return machine_of(brokers, node) == machine_of(brokers, other)
