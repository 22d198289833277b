"""The network between clients and a simulated cluster: addresses and blockages."""

from __future__ import annotations

from quorumlog.simulator.clients.client_host import ClientHost
from quorumlog.simulator.clients.client_link import ClientLink
from quorumlog.simulator.clients.node_door import NodeDoor
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.process import Door, SimProcess
from quorumlog.simulator.world.scheduler import Scheduler


class SimClientNetwork:
    """Connects clients to the services of nodes.

    Attributes:
        hosts: the living client processes, by name.
    """

    def __init__(self, cluster: SimCluster, scheduler: Scheduler) -> None:
        self.hosts: dict[str, ClientHost] = {}
        self._cluster = cluster
        self._scheduler = scheduler
        self._blocked: dict[tuple[str, int], int] = {}
        self._doors: list[NodeDoor] = []
        self._rng = scheduler.stream("doors")
        for process in cluster.processes.values():
            process.make_door = lambda process=process: self._make_door(process)

    def _make_door(self, process: SimProcess) -> Door:
        rng = self._scheduler.stream(f"door/{process.node_id}/{process.life}")
        door = NodeDoor(
            process,
            self._scheduler,
            rng,
            self._cluster.options.limits,
            self._cluster,
        )
        self._doors.append(door)
        return door

    @property
    def bootstrap_servers(self) -> str:
        """Returns the current addresses of the nodes."""
        return ",".join(process.address for process in self._cluster.processes.values())

    def listener(self, address: str) -> tuple[int, NodeDoor] | None:
        """Returns the node whose process listens at an address; None if none exists."""
        for number, process in self._cluster.processes.items():
            if process.address == address and isinstance(process.door, NodeDoor):
                return number, process.door
        return None

    def blocked_until(self, client: str, node: int) -> int:
        """Returns the time (µs) until which nothing passes between a client and a node."""
        return self._blocked.get((client, node), 0)

    def block(self, client: str, node: int, duration_us: int) -> None:
        """Blocks a path for a duration; data sent in the meantime arrives after it."""
        self._blocked[(client, node)] = self._scheduler.now + duration_us
        for link in self._links(client, node):
            if link.connection is not None:
                link.connection.stall(self._scheduler.now + duration_us)

    def sever(self, client: str, node: int, accepts_us: int) -> None:
        """Breaks a client's connections to a node; data in flight to the node arrives for another ``accepts_us``."""
        for link in self._links(client, node):
            link.lose("Socket closed", accepts_us)

    def _links(self, client: str, node: int) -> list[ClientLink]:
        host = self.hosts.get(client)
        return [
            link
            for link in (host.links if host is not None else ())
            if link.connection is not None and link.connection.open and link.connection.node == node
        ]

    def heal(self) -> None:
        """Removes all blockages; data that was delayed on its way to a node is lost."""
        self._blocked.clear()
        for host in self.hosts.values():
            for link in host.links:
                link.lose("Connection reset by peer", 0)
                link.forget()
            host.resume()
            host.wall_offset_ms = 0

    def host(self, name: str, rate_ppm: int) -> ClientHost:
        """Returns a new process of clients."""
        made = self.hosts[name] = ClientHost(name, self._scheduler, self, rate_ppm)
        return made

    def dispose(self) -> None:
        """Ends the simulation of clients."""
        for loop in (*(host.loop for host in self.hosts.values()), *(door.loop for door in self._doors)):
            loop.close()
            loop.dispose()
