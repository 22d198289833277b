"""Has all transaction coordinators hold commits while a backup notes where each partition ends.

Commits are held from a moment at which every participant has the outcome of those before, until a moment after the last
partition was described. So no transaction is committed in one partition and open in another. Each coordinator confirms
at the end that its hold has lasted, in the same term: another leader may have committed something otherwise.
"""

from __future__ import annotations

import asyncio

from quorumlog.sdk.cluster.cluster import Cluster
from quorumlog.sdk.cluster.connection import NodeConnection
from quorumlog.sdk.cluster.coordinators import GRACE_S, CoordinatorCache
from quorumlog.sdk.errors import QuorumlogError, ServerBusyError, error_from_proto
from quorumlog.v1 import transaction_admin_pb2
from quorumlog.v1.groups_pb2 import COORDINATOR_TYPE_TRANSACTION
from quorumlog.wire.topic_names import TRANSACTIONS_TOPIC

#: Longest time for which coordinators hold commits, whatever happens to the backup: each of them, and the successive
#: leaders of one together.
HOLD_MS = 5_000
#: Time for which a backup waits until participants have the outcome of earlier commits. The rest is for its look at the
#: partitions.
SETTLE_S = 3.0
#: Time limit of one request to a node.
_ATTEMPT_S = 2.0
_HOLD_ID_BYTES = 16


class BackupHold:
    """One hold."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = CoordinatorCache(cluster, COORDINATOR_TYPE_TRANSACTION)
        self._id = cluster.runtime.rng.getrandbits(8 * _HOLD_ID_BYTES).to_bytes(_HOLD_ID_BYTES, "big")
        self._terms: dict[int, int] = {}

    async def begin(self) -> None:
        """Returns when all coordinators hold commits, and all participants have the outcome of earlier ones. If that
        fails or is cancelled, it ends the hold.

        Raises:
            QuorumlogError: that took too long, or is not allowed.
        """
        runtime = self._cluster.runtime
        until_s = runtime.monotonic_s() + HOLD_MS / 1000

        async def attempt() -> None:
            # A coordinator that has moved in the meantime has a hold of its own, which ends no later than the others.
            found = await self._ask(max(1, round((until_s - runtime.monotonic_s()) * 1000)))
            for number, each in sorted(found.items()):
                name = f"{TRANSACTIONS_TOPIC}-{number}"
                if not each.holds:
                    raise ServerBusyError(f"{name} holds commits for another backup, or has until just now")
                if not each.settled:
                    raise ServerBusyError(f"{name} has commits that participants have not got yet")
            self._terms = {number: each.term for number, each in found.items()}

        try:
            await self._cluster.retrying(attempt, SETTLE_S, "the wait for commits")
        except BaseException:
            await self.end()
            raise

    async def end(self) -> bool:
        """Ends the hold. Returns True if nothing was committed since ``begin`` returned."""
        try:
            async with asyncio.timeout(_ATTEMPT_S + GRACE_S):
                found = await self._ask(0)
        except (QuorumlogError, TimeoutError):
            return False  # It ends automatically.
        return bool(self._terms) and self._terms == {number: each.term for number, each in found.items() if each.holds}

    async def _ask(self, hold_ms: int) -> dict[int, transaction_admin_pb2.HoldingCoordinator]:
        """Sends a request to all nodes that lead coordinators. Returns the coordinators by number."""
        request = transaction_admin_pb2.HoldCommitsRequest(
            hold_id=self._id, hold_ms=hold_ms, timeout_ms=int(_ATTEMPT_S * 1000)
        )
        found: dict[int, transaction_admin_pb2.HoldingCoordinator] = {}

        async def ask(node: NodeConnection) -> None:
            reply = await node.call(node.admin.HoldCommits(request, timeout=_ATTEMPT_S + GRACE_S))
            if reply.HasField("error"):
                raise error_from_proto(reply.error)
            found.update((each.number, each) for each in reply.coordinators)

        leading = await self._coordinators.require_all()
        outcomes = await asyncio.gather(*map(ask, dict.fromkeys(leading.values())), return_exceptions=True)
        for failure in outcomes:
            if failure is not None:
                raise failure
        if leading.keys() - found:
            raise self._coordinators.no_leader(min(leading.keys() - found))
        return found
