"""A process that takes backups in virtual time: the SDK's, while the cluster works and is hurt."""

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

#: What a backup may say that gives up, though another attempt may succeed, and that its error's class does not say.
_TRY_AGAIN = ("moves on faster than it is copied", "although it is there: try again")
#: Once all is healed, one question gets as long as users give it.
_PATIENT_S = 60.0


@dataclass(slots=True)
class BackupHabits:
    """How backups are taken.

    Arguments:
        wanted: how many, while the cluster is hurt; one at least is taken in the end.
        limit_s: how long one question may take, while the cluster is hurt.
        interval_s: least and most pause between two attempts.
        failing: how often the place refuses a call.
        sizes: of the pieces in which a backup is taken, and restored.
    """

    wanted: int
    limit_s: float
    interval_s: tuple[float, float]
    failing: float
    sizes: BackupSizes


def client_cluster(host: ClientHost, bootstrap_servers: str, limit_s: float) -> Cluster:
    """What backups and restores ask, as the commands make it."""
    return Cluster(
        parse_bootstrap_servers(bootstrap_servers),
        request_timeout_s=limit_s,
        bootstrap_timeout_s=min(limit_s, 3.0),
        backoff=Backoff(runtime=host.runtime),
        client_id="quorumlog-backup",
        runtime=host.runtime,
    )


class BackupLoad:
    """A process that takes backups, each into the place of the one before, until it has enough of them.

    Attributes:
        last: what is in the place now; None while there is nothing.
        taken, failures: how many attempts came to either end.
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
        """SIGKILL. What is in the place stays."""
        self.host.kill()
        self.failures += 1
        self._failure = "it was killed"

    def restart(self) -> None:
        """A new process goes on."""
        self.host = self._begin()

    def settle(self) -> None:
        """All is healed, so that the next backup has to succeed."""
        self._settling = True
        self.place.failing = 0.0

    @property
    def missing(self) -> str:
        """Why there is no backup that the last attempt has taken; empty when there is."""
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
