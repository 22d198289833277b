"""The kinds of seeds, and a function that runs one."""

from __future__ import annotations

from enum import Enum

from quorumlog.simulator.seeds.client_simulation import ClientSimulation
from quorumlog.simulator.seeds.simulation import SeedResult, Simulation
from quorumlog.simulator.seeds.transaction_simulation import TransactionSimulation


class Story(Enum):
    """The subject of a seed; the value is the option that requests it.

    NODES: nodes with simulated protocol clients, in one of three seeds with consumer groups. GROUPS: the same, with
    consumer groups in every seed. RIGHTS: the same, with clients that need ACLs, which change. MACHINES: the same, with
    several nodes on each machine, in every seed. TRANSACTIONS: the same, with transactions on topics of their own.
    CLIENTS: the SDK's own clients, in odd seeds in groups too.
    """

    NODES = ""
    GROUPS = " --groups"
    RIGHTS = " --rights"
    MACHINES = " --machines"
    TRANSACTIONS = " --transactions"
    CLIENTS = " --clients"


def run_story(seed: int, story: Story = Story.NODES) -> SeedResult:
    """Runs one seed in this process."""
    if story is Story.CLIENTS:
        return ClientSimulation(seed, with_groups=seed % 2 == 1).run()
    return simulation_of(seed, story).run()


def simulation_of(seed: int, story: Story) -> Simulation:
    """Returns the simulation of a seed of any kind but that of the SDK's own clients."""
    if story is Story.TRANSACTIONS:
        return TransactionSimulation(seed)
    return Simulation(
        seed,
        with_groups=story is Story.GROUPS,
        with_rights=story is Story.RIGHTS,
        with_machines=story is Story.MACHINES,
    )
