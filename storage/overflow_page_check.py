"""Check of rows before they are deleted: the engine frees as many pages of a large value as its header states.

If a bit of that header is flipped, the engine would free pages of other values, and the next writes would go there: a
single damaged row would destroy intact replicas. So the rows are first visited without the engine, on the bare file at
the newest commit, as far as the deletion will get. Rows written by the same transaction are not in it, and need no
check.
"""

from __future__ import annotations

from collections.abc import Callable

from quorumlog.storage.environment import Environment
from quorumlog.storage.page_file import PageFile


def look_before_freeing(
    environment: Environment, database: bytes, first: bytes, is_meant: Callable[[bytes], bool], most: int
) -> None:
    """Checks rows whose pages are about to be freed, whatever they contain. The caller holds the write transaction.

    Arguments:
        first: the key of the first of them, or one before it.
        is_meant: returns whether the row with a key is among them; they are consecutive.
        most: maximum number of rows.

    Raises:
        DamageError: their pages are invalid.
    """
    with PageFile(environment.data_file) as pages, pages.cursor(database) as cursor:
        more = cursor.set_range(first)
        while more and most > 0 and is_meant(cursor.key()):
            cursor.pass_item()
            most -= 1
            more = cursor.next()
