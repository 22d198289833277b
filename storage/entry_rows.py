"""Layout of entries in rows, which uses as few pages as possible.

The engine stores several small values per page, and gives each larger one whole pages of its own: an entry that just
exceeds a page would take two. Where that would waste much, an entry is cut: the part that fills pages exactly stays in
its row, the rest follows in small rows, whose keys sort directly after it. The length in the envelope determines where
an entry ends.
"""

from __future__ import annotations

import itertools
import math
import struct

from quorumlog.wire.entry import ENVELOPE_BYTES

#: Whole pages hold this many bytes, except for the header at the start of the first. (With larger pages, cutting saves
#: less.)
PAGE_BYTES = 4096
PAGE_HEADER_BYTES = 16
#: Values up to this size share a page with others.
SMALL_BYTES = 2000
#: Maximum size of the small rows that an entry is cut into, so that they nearly fill a page.
PIECE_BYTES = 1000
#: An entry is cut if whole pages would leave more than this share of its size empty.
MAX_WASTE = 1 / 8

_LENGTH = struct.Struct("<I")
_LENGTH_AT = 4
KEY_BYTES = 12


def cut(key: bytes, data: bytes) -> list[tuple[bytes, bytes]]:
    """Returns the rows of an entry. The first one's key is ``key``."""
    size = len(data)
    pages = (size + PAGE_HEADER_BYTES) // PAGE_BYTES
    kept = max(pages * PAGE_BYTES - PAGE_HEADER_BYTES, 0)
    if size <= SMALL_BYTES or kept == size or PAGE_BYTES - (size - kept) <= size * MAX_WASTE:
        return [(key, data)]
    count = math.ceil((size - kept) / PIECE_BYTES)
    piece = math.ceil((size - kept) / count)
    ends = [min(kept + piece * number, size) for number in range(0 if kept else 1, count + 1)]
    pieces = (
        (key + bytes((number,)), data[begin:end])
        for number, (begin, end) in enumerate(itertools.pairwise(ends), start=1)
    )
    return [(key, data[: ends[0]]), *pieces]


def missing_bytes(first: bytes) -> int:
    """Returns how many bytes of an entry are not in its first row, by its envelope; 0 if that is too short to contain
    it."""
    return max(int(_LENGTH.unpack_from(first, _LENGTH_AT)[0]) - len(first), 0) if len(first) >= ENVELOPE_BYTES else 0
