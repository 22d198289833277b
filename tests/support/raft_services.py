"""Parts beside a Raft group for tests that have neither a log on disk nor state."""

from __future__ import annotations

from quorumlog.raft.types import Entry


class NoStore:
    """A store that is never read."""

    def term_at(self, index: int) -> int:
        raise AssertionError("nothing is on disk")

    def entries(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        raise AssertionError("nothing is on disk")


class NoMachine:
    """A state machine that keeps nothing."""

    def apply(self, entries: list[Entry]) -> None:
        pass

    def restore(self, snapshot: object) -> None:
        raise AssertionError("there are no snapshots")

    def take_rows(self) -> dict[bytes, bytes | None]:
        return {}
