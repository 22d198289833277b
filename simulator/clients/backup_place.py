"""Storage of a backup in virtual time: files that outlive the processes that write them, and that sometimes fail."""

from __future__ import annotations

import random
from collections.abc import Callable

from quorumlog.sdk.backup.manifest import MANIFEST, Manifest, read_manifest
from quorumlog.sdk.backup.store import BackupStoreError
from quorumlog.sdk.backup.verification import BackupVerification
from quorumlog.simulator.models.committed_partition import Violation


class BackupPlace:
    """Files in memory, each of which appears whole or not at all. Files named by the manifest must not change.

    Arguments:
        failing: probability that a call fails.
        completed: called with each manifest that is written, which completes a backup.
    """

    def __init__(self, rng: random.Random, failing: float, completed: Callable[[Manifest], None]) -> None:
        self.files: dict[str, bytes] = {}
        self.failing = failing
        self._rng = rng
        self._completed = completed
        self._named: set[str] = set()

    def _fail_sometimes(self, what: str, name: str) -> None:
        if self._rng.random() < self.failing:
            raise BackupStoreError(f"cannot {what} {name}: No space left on device")

    def read(self, name: str) -> bytes | None:
        """Returns a file; None if it does not exist."""
        self._fail_sometimes("read", name)
        return self.files.get(name)

    def write(self, name: str, content: bytes) -> None:
        """Writes a file. A manifest completes a backup, which is verified."""
        self._fail_sometimes("write", name)
        if name in self._named and self.files[name] != content:
            raise Violation(f"{name} is overwritten, although the current backup names it")
        self.files[name] = content
        if name == MANIFEST:
            self._take_manifest()

    def delete(self, name: str) -> None:
        """Deletes a file, if it exists."""
        self._fail_sometimes("delete", name)
        if name in self._named:
            raise Violation(f"{name} is deleted, although the current backup names it")
        self.files.pop(name, None)

    def names(self, folder: str) -> list[str]:
        """Returns the names of the files in a folder."""
        self._fail_sometimes("list", folder)
        return sorted(name for name in self.files if name.rpartition("/")[0] == folder)

    def _take_manifest(self) -> None:
        failing, self.failing = self.failing, 0.0  # The check itself must not fail at random.
        manifest = read_manifest(self)
        assert manifest is not None
        self._named = {file.name for file in manifest.files()}
        problems = BackupVerification(self, "the place", lambda size: None).verify().problems
        if problems:
            raise Violation(f"a backup that was just taken is not sound: {'; '.join(problems[:3])}")
        self.failing = failing
        self._completed(manifest)
