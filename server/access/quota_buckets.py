"""The token buckets of all principals at one node, as the quotas in its metadata want them.

A principal that is not limited has none: to find that out is what a request costs where there are quotas, and where
there are none not even that. Debts are kept in memory only, as in Kafka: a node that starts anew has forgotten them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from quorumlog.server.access.token_bucket import TokenBucket
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.step.request_context import EVERYBODY

#: Principals with buckets of their own. Beyond it, those whose buckets are full make way, and if that is not enough,
#: newcomers share one set: to forget a debt would be worse.
MOST_PRINCIPALS = 20_000
#: How often at most it is looked for full buckets (µs).
SWEEP_EVERY_US = 1_000_000
#: By key of a quota.
Buckets = Mapping[str, TokenBucket]
NO_BUCKETS: Buckets = MappingProxyType({})


class _Limited:
    """A principal with buckets, as of one state of the quotas."""

    __slots__ = ("buckets", "index")

    def __init__(self, index: int, buckets: dict[str, TokenBucket]) -> None:
        self.index = index
        self.buckets = buckets


class QuotaBuckets:
    """Finds and makes buckets.

    Arguments:
        current: where the quotas are found.
        keys: of the quotas that are kept here.
        most: principals with buckets of their own.
    """

    def __init__(self, current: CurrentImage, keys: Iterable[str], most: int = MOST_PRINCIPALS) -> None:
        self._current = current
        self._keys = tuple(keys)
        self._most = most
        self._limited: dict[str, _Limited] = {}
        self._others = _Limited(0, {})
        self._swept_at: int | None = None

    def __len__(self) -> int:
        """Principals with buckets of their own."""
        return len(self._limited)

    def of(self, now: int, principal: str) -> Buckets:
        """A principal's buckets, by key; none where nothing limits it.

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
        """The metadata moved on: where no quota is left, nothing is kept."""
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
    """Brings buckets to what the quotas want by now."""
    known.index = index
    for key in known.buckets.keys() - wanted.keys():
        del known.buckets[key]
    for key, rate in wanted.items():
        bucket = known.buckets.get(key)
        if bucket is None:
            known.buckets[key] = TokenBucket(rate, now)
        elif bucket.rate != rate:
            bucket.change_rate(now, rate)
