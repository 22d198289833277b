"""Quota of partition changes at the active controller; beyond it requests fail with the time to wait (KIP-599).

Requests of the nodes themselves also change partitions, and are never refused.
"""

from __future__ import annotations

from quorumlog.server.access.quota_buckets import QuotaBuckets
from quorumlog.server.metadata.client_quotas import CONTROLLER_MUTATION_RATE
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.step.wire_errors import error
from quorumlog.v1.errors_pb2 import Error, ErrorCode


class MutationQuota:
    """Counts the partitions that principals create and delete.

    Arguments:
        current: contains the quotas.
    """

    def __init__(self, current: CurrentImage) -> None:
        self._buckets = QuotaBuckets(current, (CONTROLLER_MUTATION_RATE,))

    def refusal(self, now: int, principal: str) -> Error | None:
        """Returns the error if a principal may not change partitions now, or None.

        Arguments:
            now: microseconds on the node's clock.
        """
        bucket = self._buckets.of(now, principal).get(CONTROLLER_MUTATION_RATE)
        wait_ms = 0 if bucket is None else -(-bucket.wait_us(now) // 1_000)
        if bucket is None or not wait_ms:
            return None
        problem = (
            f"{principal} has created and deleted more partitions than its quota allows (controller_mutation_rate ="
            f" {bucket.rate:g} per second): try again in {wait_ms} ms"
        )
        return error(ErrorCode.THROTTLING_QUOTA_EXCEEDED, problem, throttle_time_ms=min(wait_ms, (1 << 32) - 1))

    def charge(self, now: int, principal: str, partitions: int) -> None:
        """Charges a principal for the partitions that it changes. If they exceed the quota, the rest becomes a debt."""
        bucket = self._buckets.of(now, principal).get(CONTROLLER_MUTATION_RATE)
        if bucket is not None:
            bucket.take(now, partitions)
