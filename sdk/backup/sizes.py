"""How large the pieces are in which a backup is taken and restored."""

from __future__ import annotations

from typing import NamedTuple


class BackupSizes(NamedTuple):
    """Bounds of the pieces. Each holds at least one batch, or one producer, however large that is.

    Arguments:
        segment_bytes: a segment is closed when it has this many bytes.
        fetch_bytes: of batches that are asked for at once.
        step_bytes: of batches, or of producers, that a restore sends at once.
        step_producers: so many producers at once, at most 1,000.
    """

    segment_bytes: int = 32 << 20
    fetch_bytes: int = 8 << 20
    step_bytes: int = 4 << 20
    step_producers: int = 1_000


#: What the commands use.
SHIPPED_SIZES = BackupSizes()
