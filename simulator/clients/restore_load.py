"""A process that restores a backup in virtual time with the SDK, while the fresh cluster has faults."""

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

#: Pause between two attempts (s).
PAUSE_S = (0.01, 0.3)
#: Timeout of a request once all faults have ended, as long as users' (s).
_PATIENT_S = 60.0
#: Text of the error if some nodes are down and a topic needs more of them: a user would start those first.
_TRY_AGAIN = "start more"


class RestoreLoad:
    """A process that restores until it has succeeded, as often as its user would repeat the command.

    Arguments:
        times: number of complete restorations after which it stops; those after the first change nothing.

    Attributes:
        done, failures: numbers of successful and failed attempts.
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
        """Sends SIGKILL. The restored part is kept."""
        self.host.kill()

    def restart(self) -> None:
        """Runs the same command again."""
        self.host = self._begin()

    def settle(self) -> None:
        """All faults have ended, so that the next restoration must succeed."""
        self._settling = True
        self._place.failing = 0.0

    @property
    def missing(self) -> str:
        """The reason why it has not succeeded; empty if it has."""
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
