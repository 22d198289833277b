"""Counts by principal for metrics, with a bound: a series for each of any number of users would drown whoever reads."""

from __future__ import annotations

#: Principals with a count of their own, those that came first. All further ones are counted together.
MOST_PRINCIPALS = 100
OTHERS = "other"


class PrincipalTotals:
    """Sums up amounts by principal."""

    def __init__(self) -> None:
        self._totals: dict[str, float] = {}

    def add(self, principal: str, amount: float = 1) -> None:
        """Adds to the total of a principal."""
        known = self._totals.get(principal)
        if known is None and len(self._totals) - (OTHERS in self._totals) >= MOST_PRINCIPALS:
            principal = OTHERS
            known = self._totals.get(principal)
        self._totals[principal] = (known or 0) + amount

    def readings(self) -> dict[tuple[str, ...], float]:
        """The totals, by label."""
        return {(principal,): total for principal, total in self._totals.items()}
