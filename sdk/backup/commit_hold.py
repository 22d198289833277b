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

#: Longest time for which coordinators hold commits, whatever happens to the backup.
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
        """Returns when all coordinators hold commits, and all participants have the outcome of earlier ones.

        Raises:
            QuorumlogError: that took too long, or is not allowed.
        """

        async def attempt() -> None:
            found = await self._ask(HOLD_MS)
            waiting = [number for number, each in sorted(found.items()) if not (each.holds and each.settled)]
            if waiting:
                raise ServerBusyError(f"__transactions-{waiting[0]} has commits that participants have not got yet")
            self._terms = {number: each.term for number, each in found.items()}

        await self._cluster.retrying(attempt, SETTLE_S, "the wait for commits")

    async def end(self) -> bool:
        """Ends the hold. Returns True if nothing was committed since ``begin`` returned."""
        try:
            found = await self._ask(0)
        except QuorumlogError:
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
