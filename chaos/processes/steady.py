"""No fault, under a share of the peak load: no leadership may move, and no term may change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from quorumlog.chaos.processes.ballast import PARTITIONS, TOPIC, BallastFigures, run_ballast
from quorumlog.chaos.processes.leaderships import Leadership, differences, leaderships
from quorumlog.chaos.processes.nemesis import ChaosError, wait_until
from quorumlog.chaos.processes.scenario_cluster import ClientOptions
from quorumlog.sdk import Admin, NewTopic

DEFAULT_DURATION_S = 60.0
DEFAULT_LOAD = 0.8
#: Duration of the search for the peak rate (s).
PEAK_S = 10.0
LEADERS_TIMEOUT_S = 20.0


@dataclass(slots=True, frozen=True)
class SteadyFigures:
    """Figures of a steady run.

    Arguments:
        load: requested share of the peak rate.
        peak: figures at the highest rate that the cluster accepted.
        steady: figures at the requested load.
        leaderships: number of watched leaderships; none has moved.
    """

    load: float
    peak: BallastFigures
    steady: BallastFigures
    leaderships: int

    def lines(self) -> list[str]:
        """Returns the figures for the terminal."""
        steady = self.steady
        return [
            f"{steady.rate:.0f} records/s for {steady.seconds:.0f} s, {100 * steady.rate / self.peak.rate:.0f} % of the"
            f" peak of {self.peak.rate:.0f} ({100 * self.load:.0f} % requested); {steady.failed} failed",
            f"latency p50 {steady.p50_ms:.1f}, p99 {steady.p99_ms:.1f}, p99.9 {steady.p999_ms:.1f},"
            f" most {steady.most_ms:.0f} ms; at the peak p50 {self.peak.p50_ms:.1f}, p99 {self.peak.p99_ms:.1f} ms",
            f"no election: {self.leaderships} leaderships kept their leaders and terms",
        ]


class SteadyLoad:
    """Loads a cluster and watches its leaderships.

    Arguments:
        check: called twice a second; an exception that it raises ends the run.
    """

    def __init__(
        self, admin: Admin, clients: ClientOptions, check: Callable[[], None], say: Callable[[str], None]
    ) -> None:
        self._admin = admin
        self._clients = clients
        self._check = check
        self._say = say

    def hold(self, duration_s: float, load: float) -> SteadyFigures:
        """Finds the peak rate, then holds a share of it.

        Raises:
            ChaosError: a leadership has moved, a term has changed, or the cluster did not sustain the load.
        """
        self._admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
        wait_until(self._settled, LEADERS_TIMEOUT_S, "every partition has its preferred leader")
        peak = run_ballast(self._clients, 0, min(PEAK_S, duration_s), self._check)
        self._say(f"  peak {peak.rate:.0f} records/s, p50 {peak.p50_ms:.1f} ms; now {100 * load:.0f} % of it")
        before = leaderships(self._admin)

        def unmoved() -> None:
            self._check()
            self._require_unmoved(before)

        steady = run_ballast(self._clients, load * peak.rate, duration_s, unmoved)
        self._require_unmoved(before)
        if steady.failed:
            raise ChaosError(f"{steady.failed} records were not acknowledged, without a fault")
        return SteadyFigures(load, peak, steady, len(before))

    def _settled(self) -> bool:
        return all(one.leader is not None and one.preferred for one in leaderships(self._admin).values())

    def _require_unmoved(self, before: dict[str, Leadership]) -> None:
        moved = differences(before, leaderships(self._admin))
        if moved:
            raise ChaosError(f"without a fault {len(moved)} leaderships moved: {'; '.join(moved[:5])}")
