"""Token buckets of all principals at one node, according to the quotas in its metadata.

A principal without a quota has none: finding that out is the cost of a request where there are quotas, and without
quotas not even that is needed. Debts are in memory only, as in Kafka: a restart forgets them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from quorumlog.server.access.token_bucket import TokenBucket
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.step.request_context import EVERYBODY

#: Maximum number of principals with buckets of their own. Beyond it, full buckets are dropped; if that is not enough,
#: new principals share one set, because forgetting a debt would be worse.
MOST_PRINCIPALS = 20_000
#: Minimum interval between sweeps for full buckets (µs).
SWEEP_EVERY_US = 1_000_000
#: Buckets by quota key.
Buckets = Mapping[str, TokenBucket]
NO_BUCKETS: Buckets = MappingProxyType({})


class _Limited:
    """A principal with buckets, for one version of the quotas."""

    __slots__ = ("buckets", "index")

    def __init__(self, index: int, buckets: dict[str, TokenBucket]) -> None:
        self.index = index
        self.buckets = buckets


class QuotaBuckets:
    """Finds and creates buckets.

    Arguments:
        current: contains the quotas.
        keys: of the quotas that are enforced here.
        most: maximum number of principals with buckets of their own.
    """

    def __init__(self, current: CurrentImage, keys: Iterable[str], most: int = MOST_PRINCIPALS) -> None:
        self._current = current
        self._keys = tuple(keys)
        self._most = most
        self._limited: dict[str, _Limited] = {}
        self._others = _Limited(0, {})
        self._swept_at: int | None = None

    def __len__(self) -> int:
        """Returns the number of principals with buckets of their own."""
        return len(self._limited)

    def of(self, now: int, principal: str) -> Buckets:
        """Returns a principal's buckets, by key; empty if it has no quota.

        Arguments:
            now: microseconds on the node's clock.
        """
        quotas = self._current.image.client_quotas
        if not quotas.by_principal:
            return NO_BUCKETS
        known = self._limited.get(principal)
        if known is not None and known.index == quotas.index:
            return known.buckets
        limits = quotas.limits_of(principal)
        wanted = {key: limits[key] for key in self._keys if key in limits} if limits else {}
        if not wanted:
            if known is not None:
                del self._limited[principal]
            return NO_BUCKETS
        if known is None:
            known = self._newcomer(now, principal)
            if known is self._others:
                limits = quotas.limits_of(EVERYBODY)
                wanted = {key: limits[key] for key in self._keys if key in limits}
        _renew(known, now, quotas.index, wanted)
        return known.buckets

    def quotas_changed(self) -> None:
        """Drops all buckets if no quotas are left after a change of the metadata."""
        if self._limited and not self._current.image.client_quotas.by_principal:
            self._limited.clear()
            self._others = _Limited(0, {})

    def _newcomer(self, now: int, principal: str) -> _Limited:
        if len(self._limited) >= self._most:
            self._sweep(now)
            if len(self._limited) >= self._most:
                return self._others
        made = self._limited[principal] = _Limited(0, {})
        return made

    def _sweep(self, now: int) -> None:
        if self._swept_at is not None and now < self._swept_at + SWEEP_EVERY_US:
            return
        self._swept_at = now
        for principal, known in list(self._limited.items()):
            if all(bucket.is_full(now) for bucket in known.buckets.values()):
                del self._limited[principal]


def _renew(known: _Limited, now: int, index: int, wanted: Mapping[str, float]) -> None:
    """Updates buckets to the current quotas."""
    known.index = index
    for key in known.buckets.keys() - wanted.keys():
        del known.buckets[key]
    for key, rate in wanted.items():
        bucket = known.buckets.get(key)
        if bucket is None:
            known.buckets[key] = TokenBucket(rate, now)
        elif bucket.rate != rate:
            bucket.change_rate(now, rate)
