"""A look at rows before they are deleted: of a large value the engine frees as many pages as its own header says.

Where a bit of that header is flipped, it would give away pages that are others', and whatever is written next would
land there: one damaged row, and sound replicas are lost. So the way there is gone first without the engine, on the bare
file at the newest commit, as far as the deletion is going to come. Rows that the transaction has put itself are not in
it, and need no look.
"""

from __future__ import annotations

from collections.abc import Callable

from quorumlog.storage.environment import Environment
from quorumlog.storage.page_file import PageFile


def look_before_freeing(
    environment: Environment, database: bytes, first: bytes, is_meant: Callable[[bytes], bool], most: int
) -> None:
    """Takes up rows whose pages are about to be freed, whatever they hold. Called by who holds the write transaction.

    Arguments:
        first: the key of the first of them, or one before it.
        is_meant: whether the row with a key is among them; they are neighbours.
        most: rows.

    Raises:
        DamageError: their pages are not as the engine would take them for.
    """
    with PageFile(environment.data_file) as pages, pages.cursor(database) as cursor:
        more = cursor.set_range(first)
        while more and most > 0 and is_meant(cursor.key()):
            cursor.pass_item()
            most -= 1
            more = cursor.next()
