"""An operator in virtual time, who lists, describes and aborts transactions with the SDK's admin client.

A transaction that an operator has aborted was decided so, once and for all. What a description says was true when it
was requested, or later: a transaction that is described as open was not decided before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from quorumlog.sdk.admin.async_admin import AsyncAdmin
from quorumlog.sdk.errors import InvalidTxnStateError, QuorumlogError
from quorumlog.sdk.transaction_views import TransactionPlace, TransactionState
from quorumlog.simulator.clients.client_host import ClientHost
from quorumlog.simulator.clients.client_network import SimClientNetwork
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.models.transaction_models import ModelTransaction
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.scheduler import Scheduler

_OPTIONS: dict[str, Any] = {"request_timeout_ms": 1_000, "bootstrap_timeout_ms": 1_000}


class TransactionOperator:
    """A process of an operator, and those that replace it.

    Arguments:
        habits: minimum and maximum pause between two actions (s), and the share of open transactions that it aborts.
        happened: counts its actions.
    """

    def __init__(
        self,
        habits: tuple[tuple[float, float], float],
        network: SimClientNetwork,
        cluster: SimCluster,
        scheduler: Scheduler,
        happened: Counter[str],
    ) -> None:
        self.ended = False
        self.name = "operator of transactions"
        self._pause_s, self._aborts = habits
        self._network = network
        self._cluster = cluster
        self._scheduler = scheduler
        self._rng = scheduler.stream(f"sdk transactions/{self.name}")
        self._happened = happened
        self._settling = self._stopping = False
        self._lives = 0
        self._aborted: list[tuple[str, TransactionPlace]] = []
        self.host = self._begin()

    def _begin(self) -> ClientHost:
        self._lives += 1
        host = self._network.host(f"{self.name}/{self._lives}", 0)
        host.run(self._work(host))
        return host

    def crash(self) -> None:
        """Sends SIGKILL."""
        self.host.kill()

    def restart(self) -> None:
        """Starts a new process."""
        self.host = self._begin()

    def settle(self) -> None:
        """Aborts nothing from now on."""
        self._settling = True

    def stop(self) -> None:
        """Ends the process."""
        self._stopping = True

    async def _work(self, host: ClientHost) -> None:
        admin = AsyncAdmin(
            runtime=host.runtime, bootstrap_servers=self._network.bootstrap_servers, client_id="operator", **_OPTIONS
        )
        while not self._stopping:
            await asyncio.sleep(self._rng.uniform(*self._pause_s))
            try:
                await self._look(admin)
            except QuorumlogError:
                self._happened["operator requests failed"] += 1
        await admin.close()
        self.ended = True

    async def _look(self, admin: AsyncAdmin) -> None:
        states = [TransactionState.ONGOING] if self._rng.random() < 0.5 else None
        listed = await admin.list_transactions(states)
        self._happened["lists of transactions"] += 1
        if not listed:
            return
        name = self._rng.choice(listed).transactional_id
        asked_us = self._scheduler.now
        (found,) = await admin.describe_transactions([name])
        self._happened["descriptions of transactions"] += 1
        if found.place is None:
            return
        self._check_open(name, found.place, asked_us)
        if self._rng.random() < self._aborts and not self._settling:
            if self._rng.random() < 0.3:
                await asyncio.sleep(self._rng.uniform(*self._pause_s))
            await self._abort(admin, name, found.place)

    async def _abort(self, admin: AsyncAdmin, name: str, place: TransactionPlace) -> None:
        try:
            await admin.abort_transaction(name, place)
        except InvalidTxnStateError:
            self._happened["transactions over before the operator's abort"] += 1
            decided = self._decided(name, place)
            if decided is not None and not decided.committed and self._is_the_last(decided):
                raise Violation(f"{name} has aborted its transaction of {place}, and the operator is refused") from None
            return
        self._happened["transactions aborted by the operator"] += 1
        self._aborted.append((name, place))
        self._check_aborted(name, place)

    # -- judging ------------------------------------------------------------------------------------------------------

    def _decided(self, name: str, place: TransactionPlace) -> ModelTransaction | None:
        origin = (place.term, place.index)
        decided = self._cluster.invariants.transactions.transactions
        return next((each for each in decided if (each.name, each.origin) == (name, origin)), None)

    def _is_the_last(self, transaction: ModelTransaction) -> bool:
        models = self._cluster.invariants.transactions
        others = [each for each in models.transactions if each.name == transaction.name]
        return others[-1] is transaction and not any(each.name == transaction.name for each, _ in models.open)

    def _check_open(self, name: str, place: TransactionPlace, asked_us: int) -> None:
        decided = self._decided(name, place)
        if decided is not None and decided.seen_us < asked_us:
            raise Violation(
                f"{name} is described as open at {place} by a request of {asked_us}; it was decided at"
                f" {decided.seen_us}"
            )

    def _check_aborted(self, name: str, place: TransactionPlace) -> None:
        decided = self._decided(name, place)
        if decided is None or decided.committed:
            raise Violation(f"the operator has aborted the transaction of {name} from {place}, and it is {decided}")

    def judge(self) -> None:
        """Judges that what the operator has aborted has stayed so.

        Raises:
            Violation: it has not.
        """
        for name, place in self._aborted:
            self._check_aborted(name, place)
