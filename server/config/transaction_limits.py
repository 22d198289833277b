"""Limits of transactions, which the leader of a coordinator enforces."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class TransactionLimits:
    """Limits of one transaction coordinator.

    Arguments:
        ids: maximum number of transactional ids.
        coordinator_bytes: maximum size of all of them, approximately.
        participants: maximum number of partitions and consumer groups of the transactions of one id that have not
            ended.
        writers: maximum number of writers of one transaction.
        max_timeout_ms: maximum time for which a producer may have a transaction open.
        retention_ms: time after which an unused transactional id is removed.
        work_retention_ms: the same for one that has committed numbered work: work that is run again later than that
            would be committed twice.
    """

    ids: int = 10_000
    coordinator_bytes: int = 64 << 20
    participants: int = 10_000
    writers: int = 10_000
    max_timeout_ms: int = 3_600_000
    retention_ms: int = 7 * 86_400_000
    work_retention_ms: int = 365 * 86_400_000
