"""Sizes of the pieces in which a backup is created and restored."""

from __future__ import annotations

from typing import NamedTuple


class BackupSizes(NamedTuple):
    """Limits of the pieces. Each has at least one batch, or one producer, however large that is.

    Arguments:
        segment_bytes: a segment is closed at this size.
        fetch_bytes: of batches in one request.
        step_bytes: of batches, or of producers, in one step of a restore.
        step_producers: limit of producers in one step, at most 1,000.
    """

    segment_bytes: int = 32 << 20
    fetch_bytes: int = 8 << 20
    step_bytes: int = 4 << 20
    step_producers: int = 1_000


#: The sizes of the commands.
SHIPPED_SIZES = BackupSizes()
