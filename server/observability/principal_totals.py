"""Counts by principal for metrics, bounded because a series per user would flood the monitoring system."""

from __future__ import annotations

#: Number of principals with a total of their own; the first ones get it. All others share one total.
MOST_PRINCIPALS = 100
OTHERS = "other"


class PrincipalTotals:
    """Totals by principal."""

    def __init__(self) -> None:
        self._totals: dict[str, float] = {}

    def add(self, principal: str, amount: float = 1) -> None:
        known = self._totals.get(principal)
        if known is None and len(self._totals) - (OTHERS in self._totals) >= MOST_PRINCIPALS:
            principal = OTHERS
            known = self._totals.get(principal)
        self._totals[principal] = (known or 0) + amount

    def readings(self) -> dict[tuple[str, ...], float]:
        """Returns the totals, by label."""
        return {(principal,): total for principal, total in self._totals.items()}
