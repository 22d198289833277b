"""The machine of simulated clients: its clocks, its random source, its links to nodes, and a process that pauses and
crashes.
"""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

from quorumlog.sdk.runtime.client_runtime import ClientRuntime
from quorumlog.simulator.clients.client_link import ClientLink, ClientNetwork
from quorumlog.simulator.clients.virtual_loop import VirtualLoop
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.world.process import EPOCH_MS
from quorumlog.simulator.world.scheduler import Scheduler

#: Delay before and after blocking work takes effect (s).
BLOCKING_S = (0.0, 0.002)


class ClientHost:
    """One process of clients. A process that is restarted after a crash is another one.

    Arguments:
        name: unique in the simulation.
        rate_ppm: deviation of its monotonic clock from the simulation's, in millionths.

    Attributes:
        runtime: the runtime for the shipped clients.
        wall_offset_ms: error of its wall clock.
    """

    def __init__(self, name: str, scheduler: Scheduler, network: ClientNetwork, rate_ppm: int = 0) -> None:
        self.name = name
        self.scheduler = scheduler
        self.rng = scheduler.stream(f"client/{name}")
        self.loop = VirtualLoop(scheduler, scheduler.stream(f"client-loop/{name}"), name, rate_ppm)
        self.links: list[ClientLink] = []
        self.wall_offset_ms = 0
        self._network = network
        self._thread_rng = scheduler.stream(f"client-threads/{name}")
        self._link_rng = scheduler.stream(f"client-link/{name}")
        self.runtime = ClientRuntime(
            monotonic_s=self.loop.time,
            wall_ns=self._wall_ns,
            rng=random.Random(self.rng.getrandbits(64)),
            # It has the parts of a channel that clients use.
            open_channel=self._open_channel,  # type: ignore[arg-type]
            run_blocking=self._run_blocking,
        )

    def _wall_ns(self) -> int:
        return (EPOCH_MS + self.wall_offset_ms) * 1_000_000 + self.scheduler.now * 1_000

    def _open_channel(self, holder: object, address: str, client_id: str) -> ClientLink:
        link = ClientLink(self.name, "10.0.0.1", address, self.loop, self.scheduler, self._link_rng, self._network)
        self.links.append(link)
        return link

    async def _run_blocking(self, work: Callable[..., Any], *args: Any) -> Any:
        """Runs a thread's work at one instant: a process that crashes before has not done it, one that crashes later
        has.
        """
        await asyncio.sleep(self._thread_rng.uniform(*BLOCKING_S))
        result = work(*args)
        await asyncio.sleep(self._thread_rng.uniform(*BLOCKING_S))
        return result

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts the process's work. An exception that it raises is a finding."""

        async def guarded() -> None:
            try:
                await work
            except Violation as finding:
                self.loop.fail(finding)
            except Exception as error:  # An exception that the caller of a client did not expect is a finding, too.
                place = "".join(traceback.format_exception(error)[-3:])
                self.loop.fail(Violation(f"{self.name}: {type(error).__name__}: {error} {place}"))

        self.loop.create_task(guarded())

    @property
    def alive(self) -> bool:
        """True if the process has not been killed."""
        return self.loop.is_running()

    def pause(self) -> None:
        """Sends SIGSTOP."""
        self.loop.paused = True

    def resume(self) -> None:
        """Sends SIGCONT."""
        self.loop.resume()

    def kill(self) -> None:
        """Sends SIGKILL. Data in flight may still arrive."""
        self.loop.close()
        for link in self.links:
            link.lose("killed", self._link_rng.randint(0, 3_000))
