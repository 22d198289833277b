"""A process that takes backups in virtual time with the SDK, while the cluster works and has faults."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from quorumlog.sdk.backup.creation import BackupCreation
from quorumlog.sdk.backup.manifest import Manifest
from quorumlog.sdk.backup.sizes import BackupSizes
from quorumlog.sdk.backup.store import BackupStoreError
from quorumlog.sdk.cluster.cluster import Cluster, parse_bootstrap_servers
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.simulator.clients.backup_judge import BackupJudge, ClusterMoment, TakenBackup
from quorumlog.simulator.clients.backup_place import BackupPlace
from quorumlog.simulator.clients.client_host import ClientHost
from quorumlog.simulator.models.committed_partition import Violation

#: Texts of errors after which another attempt may succeed, although the error's class does not show it.
_TRY_AGAIN = ("moves on faster than it is copied", "although it exists: try again")
#: Timeout of a request once all faults have ended, as long as users' (s).
_PATIENT_S = 60.0


@dataclass(slots=True)
class BackupHabits:
    """Workload of backups.

    Arguments:
        wanted: number of backups during faults; at least one is taken at the end.
        limit_s: timeout of a request during faults.
        interval_s: minimum and maximum pause between two attempts.
        failing: probability that the storage rejects a call.
        sizes: sizes of the pieces in which a backup is taken, and restored.
    """

    wanted: int
    limit_s: float
    interval_s: tuple[float, float]
    failing: float
    sizes: BackupSizes


def client_cluster(host: ClientHost, bootstrap_servers: str, limit_s: float) -> Cluster:
    """Returns the client of backups and restores, as the commands create it."""
    return Cluster(
        parse_bootstrap_servers(bootstrap_servers),
        request_timeout_s=limit_s,
        bootstrap_timeout_s=min(limit_s, 3.0),
        backoff=Backoff(runtime=host.runtime),
        client_id="quorumlog-backup",
        runtime=host.runtime,
    )


class BackupLoad:
    """A process that takes backups, each on top of the previous one, until it has enough of them.

    Attributes:
        last: the current backup in the storage; None without one.
        taken, failures: numbers of successful and failed attempts.
    """

    def __init__(
        self,
        habits: BackupHabits,
        rng: random.Random,
        make_host: Callable[[str], ClientHost],
        bootstrap_servers: Callable[[], str],
        judge: BackupJudge,
    ) -> None:
        self.last: TakenBackup | None = None
        self.taken = self.failures = 0
        self.place = BackupPlace(rng, habits.failing, self._completed)
        self.habits = habits
        self._rng = rng
        self._make_host = make_host
        self._bootstrap_servers = bootstrap_servers
        self._judge = judge
        self._began: ClusterMoment | None = None
        self._settling = False
        self._failure = "no attempt has come to its end"
        self._lives = 0
        self.host = self._begin()

    def _begin(self) -> ClientHost:
        self._lives += 1
        host = self._make_host(f"backup/{self._lives}")
        host.run(self._work(host))
        return host

    def crash(self) -> None:
        """Sends SIGKILL. The storage is kept."""
        self.host.kill()
        self.failures += 1
        self._failure = "it was killed"

    def restart(self) -> None:
        """Starts a new process."""
        self.host = self._begin()

    def settle(self) -> None:
        """All faults have ended, so that the next backup must succeed."""
        self._settling = True
        self.place.failing = 0.0

    @property
    def missing(self) -> str:
        """The reason why the last attempt has not taken a backup; empty if it has."""
        return f"there is no backup: {self._failure}" if self._failure or self.last is None else ""

    # -- the process ----------------------------------------------------------------------------------------------

    async def _work(self, host: ClientHost) -> None:
        while self.missing or (not self._settling and self.taken < self.habits.wanted):
            await asyncio.sleep(self._rng.uniform(*self.habits.interval_s))
            limit_s = _PATIENT_S if self._settling else self.habits.limit_s
            cluster = client_cluster(host, self._bootstrap_servers(), limit_s)
            self._began = self._judge.moment()
            creation = BackupCreation(cluster, self.place, None, limit_s, lambda size: None, self.habits.sizes)
            try:
                await creation.create()
                self.taken += 1
                self._failure = ""
            except QuorumlogError as error:
                self._failed(error)
            finally:
                if host.alive:
                    await cluster.close()

    def _failed(self, error: QuorumlogError) -> None:
        self.failures += 1
        self._failure = f"{type(error).__name__}: {error.message}"
        passes = isinstance(error, BackupStoreError) or error.retriable
        if not passes and not any(text in error.message for text in _TRY_AGAIN):
            raise Violation(f"a backup failed for good: {self._failure}")

    def _completed(self, manifest: Manifest) -> None:
        assert self._began is not None
        self.last = self._judge.judge(manifest, self.place, self._began)
