"""Figures of a measurement of the steady state."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(slots=True, frozen=True)
class Steady:
    """One batch size. ``retained_bytes``: of batches that are kept; ``file_bytes``: the largest of the nodes' files."""

    batch_bytes: int
    retained_bytes: int
    fresh_mib_s: float
    steady_mib_s: float
    file_bytes: int

    @property
    def ratio(self) -> float:
        """Share of the fresh rate that is left."""
        return self.steady_mib_s / self.fresh_mib_s

    @property
    def file_ratio(self) -> float:
        """Size of the file relative to what is retained."""
        return self.file_bytes / self.retained_bytes
