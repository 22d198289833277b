"""Every peer has its turn, round by round: its servers are started, measured at every load, and ended.

One peer's servers run at a time, so that none pays for another that idles; their order changes from round to round.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.delivery_gaps import MemberDelivery, longest_gap_ms
from bench.figures import Figures
from bench.peers.client_process import run_client, run_load, steady_client
from bench.peers.clients.target import Target
from bench.peers.loads import PeerLoad
from bench.peers.peer import Kind, Peer, RunningServers, Side
from bench.peers.readings import Reading
from bench.peers.server_processes import PeerError
from bench.process_cost import cpu_seconds, memory_of

#: The share of a load that a new topic is written with before it is measured, and the least records of that.
_PRACTICE = 0.25
_LEAST_PRACTICE = 20


def measure(
    peers: Sequence[Peer], loads: Sequence[PeerLoad], rounds: int, work_dir: Path, say: Callable[[str], None]
) -> tuple[list[Reading], list[str]]:
    """All readings of all rounds, those of the first round in the order of the peers as given; and what failed.

    A peer that fails has no more readings in that round. The others continue.

    Arguments:
        say: takes a line about progress.
    """
    readings, failures = [], []
    for number in range(rounds):
        first = number % len(peers)
        for peer in [*peers[first:], *peers[:first]]:
            say(f"round {number + 1} of {rounds}: {peer.name}")
            try:
                with peer.start(work_dir) as servers:
                    turn = PeerTurn(peer, servers, number)
                    for load in loads:
                        readings += turn.measured(load)
            except PeerError as problem:
                failures.append(f"round {number + 1}, {peer.name}: {' '.join(str(problem).split())}")
    return readings, failures


class PeerTurn:
    """One peer's turn on fresh servers.

    Arguments:
        number: of the round; another side is the first in each, when a JVM is cold.
    """

    def __init__(self, peer: Peer, servers: RunningServers, number: int) -> None:
        self._peer = peer
        self._number = number
        self._servers = servers
        self._topics = 0

    def measured(self, load: PeerLoad) -> list[Reading]:
        """Every side at a load of its kind."""
        measures = {
            Kind.PRODUCE: self._produced,
            Kind.CONSUME: self._consumed,
            Kind.SINGLY: self._sent_singly,
            Kind.STEADY: self._killed,
        }
        return measures[load.kind](load)

    # -- the kinds of load ------------------------------------------------------------------------------------------

    def _produced(self, load: PeerLoad) -> list[Reading]:
        readings = []
        for side in self._sides(Kind.PRODUCE):
            target = self._new_topic(side, load.partitions)
            practice = max(_LEAST_PRACTICE, int(load.count * side.share * _PRACTICE))
            run_load(side.client, side.call or "produce", target, load.size, practice)
            figures, cpu_s = self._timed(side, target, load)
            readings += self._rates(load, side, figures, cpu_s)
        return readings

    def _consumed(self, load: PeerLoad) -> list[Reading]:
        sides = self._sides(Kind.CONSUME)
        if not sides:
            return []
        writer = self._peer.sides_of(Kind.PRODUCE)[0]
        written = self._new_topic(writer, load.partitions)
        count = max(_LEAST_PRACTICE, int(load.count * max(side.share for side in sides)))
        run_load(writer.client, writer.call or "produce", written, load.size, count)
        readings = []
        for side in sides:
            target = Target(written.servers, written.topic, written.partitions, options=side.options)
            figures, cpu_s = self._timed(side, target, load)
            readings += self._rates(load, side, figures, cpu_s)
        return readings

    def _sent_singly(self, load: PeerLoad) -> list[Reading]:
        readings = []
        for side in self._sides(Kind.SINGLY):
            figures, _ = self._timed(side, self._new_topic(side, load.partitions), load)
            assert figures.p50_ms is not None and figures.p99_ms is not None
            for name, value in (("p50", figures.p50_ms), ("p99", figures.p99_ms)):
                readings.append(Reading(f"{load.name}, {name}", "ms", side.name, value))
        return readings

    def _killed(self, load: PeerLoad) -> list[Reading]:
        sides = self._peer.sides_of(Kind.STEADY)
        if not sides:
            return []
        (side,) = sides
        memory = self._memory()
        target = self._new_topic(side, load.partitions)
        with steady_client(side.client, target, load.size) as client:
            client.wait_until_settled()
            self._servers.kill(run_client(side.client, "leader", target))
            client.told_of_the_kill()
            seen = client.result()
        if not seen["back"]:
            raise PeerError(f"{self._peer.name}: no record was acknowledged after its leader was killed")
        deliveries = [MemberDelivery(at_ns, side.name) for at_ns in seen["acknowledged_ns"]]
        gap_ms = longest_gap_ms(deliveries, deliveries[0].at_ns, deliveries[-1].at_ns)
        return [
            *memory,
            Reading(load.name, "ms", side.name, gap_ms),
            Reading("leader killed, records given up by the client", "records", side.name, seen["failed"]),
        ]

    def _memory(self) -> list[Reading]:
        """Private memory after everything but the kill; nothing of a peer that is measured at nothing else."""
        if not self._topics:
            return []
        each = [memory_of(pid).private / 1024 for pid in self._servers.pids.values()]
        return [Reading("private memory of a server, median of three", "MiB", self._peer.name, statistics.median(each))]

    # -- what they share --------------------------------------------------------------------------------------------

    def _sides(self, kind: Kind) -> list[Side]:
        """Returns the sides of a kind, in this round's order."""
        sides = self._peer.sides_of(kind)
        first = self._number % len(sides) if sides else 0
        return [*sides[first:], *sides[:first]]

    def _new_topic(self, side: Side, partitions: int) -> Target:
        self._topics += 1
        target = Target(
            self._servers.addresses, f"bench-{self._topics}", partitions, configs=side.configs, options=side.options
        )
        run_client(self._creator, "create", target)
        return target

    @property
    def _creator(self) -> str:
        """The client that creates topics: that of the first side."""
        return self._peer.sides[0].client

    def _timed(self, side: Side, target: Target, load: PeerLoad) -> tuple[Figures, float]:
        """A run, and the processor time that the servers took in the meantime."""
        pids = list(self._servers.pids.values())
        before = sum(cpu_seconds(pid) for pid in pids)
        count = max(_LEAST_PRACTICE, int(load.count * side.share))
        figures = run_load(side.client, side.call or load.kind.value, target, load.size, count)
        return figures, sum(cpu_seconds(pid) for pid in pids) - before

    def _rates(self, load: PeerLoad, side: Side, figures: Figures, cpu_s: float) -> list[Reading]:
        per_million = cpu_s / figures.operations * 1e6
        return [
            Reading(load.name, "records/s", side.name, figures.operations_per_second),
            Reading(f"{load.name}, processor time of the servers", "s per million", side.name, per_million),
        ]
