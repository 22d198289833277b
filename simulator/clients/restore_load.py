"""A process that restores a backup in virtual time: the SDK's, while the fresh cluster is hurt."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from quorumlog.sdk.backup.manifest import require_manifest
from quorumlog.sdk.backup.restoration import BackupRestoration, RestoreOptions
from quorumlog.sdk.backup.store import BackupStoreError
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.simulator.clients.backup_load import BackupHabits, client_cluster
from quorumlog.simulator.clients.backup_place import BackupPlace
from quorumlog.simulator.clients.client_host import ClientHost
from quorumlog.simulator.models.committed_partition import Violation

#: How long after an attempt the next one begins.
PAUSE_S = (0.01, 0.3)
#: Once all is healed, one question gets as long as users give it.
_PATIENT_S = 60.0
#: Some nodes are down, and a topic wants more of them: a user would start those first.
_TRY_AGAIN = "start more"


class RestoreLoad:
    """A process that restores until it has come to the end, as often as its owner would give the command again.

    Arguments:
        times: after how many whole restores it has enough; what comes after the first changes nothing.

    Attributes:
        done, failures: how many attempts came to either end.
    """

    def __init__(
        self,
        habits: BackupHabits,
        place: BackupPlace,
        times: int,
        rng: random.Random,
        make_host: Callable[[str], ClientHost],
        bootstrap_servers: Callable[[], str],
    ) -> None:
        self.done = self.failures = 0
        self._habits = habits
        self._place = place
        self._times = times
        self._rng = rng
        self._make_host = make_host
        self._bootstrap_servers = bootstrap_servers
        self._settling = False
        self._failure = "no attempt has come to its end"
        self._lives = 0
        self.host = self._begin()

    def _begin(self) -> ClientHost:
        self._lives += 1
        host = self._make_host(f"restore/{self._lives}")
        host.run(self._work(host))
        return host

    def crash(self) -> None:
        """SIGKILL. What the cluster has of the backup stays."""
        self.host.kill()

    def restart(self) -> None:
        """The same command again."""
        self.host = self._begin()

    def settle(self) -> None:
        """All is healed, so that the next restore has to succeed."""
        self._settling = True
        self._place.failing = 0.0

    @property
    def missing(self) -> str:
        """Why it has not come to the end; empty when it has."""
        return "" if self.done >= self._times else f"the restore has not come to its end: {self._failure}"

    async def _work(self, host: ClientHost) -> None:
        while self.missing:
            await asyncio.sleep(self._rng.uniform(*PAUSE_S))
            limit_s = _PATIENT_S if self._settling else self._habits.limit_s
            cluster = client_cluster(host, self._bootstrap_servers(), limit_s)
            options = RestoreOptions(None, None, {}, limit_s, self._habits.sizes)
            try:
                await cluster.ask_metadata([])
                manifest = await host.runtime.run_blocking(require_manifest, self._place, "the place")
                await BackupRestoration(cluster, self._place, manifest, options, lambda size: None).restore()
                self.done += 1
            except QuorumlogError as error:
                self._failed(error)
            finally:
                if host.alive:
                    await cluster.close()

    def _failed(self, error: QuorumlogError) -> None:
        self.failures += 1
        self._failure = f"{type(error).__name__}: {error.message}"
        if not error.retriable and not isinstance(error, BackupStoreError) and _TRY_AGAIN not in error.message:
            raise Violation(f"a restore failed for good: {self._failure}")
