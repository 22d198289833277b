"""One seed with transactions; in one of three, the SDK's own clients are among those that use them, and in three of ten
backups have commits held."""

from __future__ import annotations

import logging
import random
from collections.abc import Container
from typing import ClassVar

from quorumlog.simulator.clients.client_network import SimClientNetwork
from quorumlog.simulator.clients.transaction_load import (
    CONFIGS,
    TOPICS,
    SdkTransactions,
    TransactionHabits,
    draw_transaction_habits,
)
from quorumlog.simulator.seeds.simulation import SeedResult, Simulation
from quorumlog.simulator.world.commit_holds import CommitHolds
from quorumlog.simulator.world.transactional_clients import TransactionalClients

#: One seed in this many has transactional clients of the SDK.
SDK_SEEDS = 3
#: Share of seeds with backups that have commits held.
_HOLDS = 0.3


class TransactionSimulation(Simulation):
    """Runs one seed with transactions.

    Attributes:
        habits: the SDK's transactional clients; None without them.
    """

    with_transactions: ClassVar[bool] = True

    def __init__(self, seed: int, only_faults: Container[int] | None = None) -> None:
        super().__init__(seed, only_faults)
        self.habits: TransactionHabits | None = None
        self._network: SimClientNetwork | None = None
        self._sdk: SdkTransactions | None = None
        self._has_holds = random.Random(f"{seed}/commit holds").random() > 1 - _HOLDS
        self._holds: CommitHolds | None = None
        if seed % SDK_SEEDS == 0:
            election_timeout_ms = self.plan.cluster.raft.election_timeout_us // 1_000
            self.habits = draw_transaction_habits(random.Random(f"{seed}/sdk transactions"), election_timeout_ms)
            # From its start on, a node serves the SDK's clients.
            self._network = SimClientNetwork(self.cluster, self.scheduler)
            for topic in TOPICS:
                self._topics[topic] = self.habits.partitions
                self.plan.configs[topic] = CONFIGS

    def run(self) -> SeedResult:
        """Runs to the end, or to the first violation."""
        # Clients log lost connections and rebalances, which are expected here.
        log = logging.getLogger("quorumlog.sdk")
        heard, log.disabled = log.disabled, True
        try:
            result = super().run()
        finally:
            log.disabled = heard
            if self._network is not None:
                self._network.dispose()
        if self._sdk is not None:
            result.happened += self._sdk.happened
        if self._holds is not None:
            result.happened += self._holds.happened
        return result

    def _start_transactions(self) -> None:
        super()._start_transactions()
        if self._has_holds:
            clients = next(each for each in self.transactions if isinstance(each, TransactionalClients))
            self._holds = CommitHolds(clients, self.cluster, self.scheduler)
            self.transactions.append(self._holds)
        if self.habits is not None and self._network is not None:
            self._sdk = SdkTransactions(self.habits, self._network, self.cluster, self.scheduler)
            self.transactions.append(self._sdk)
