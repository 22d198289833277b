"""The cluster behind ``quorumlog console --playground``: local processes, deleted when the console exits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from quorumlog.cli.progress import waiting
from quorumlog.console.playground.controls import NodeControlError

if TYPE_CHECKING:
    from quorumlog.chaos.processes.link_proxy import LinkProxies
    from quorumlog.local import LocalCluster

#: The kernel's table of connections, which contains their owners. Only Linux has it.
_SOCKETS = Path("/proc/net/tcp")
#: Address that nodes with proxied links advertise, with a port for each of their listeners: the proxies listen there.
_PROXIED_HOST = "127.0.0.2"


class PlaygroundNodes:
    """A local cluster that the console's page can control.

    Arguments:
        proxies: proxies of all links; None where links cannot be cut.
    """

    def __init__(self, cluster: LocalCluster, proxies: LinkProxies | None) -> None:
        self._cluster = cluster
        self._proxies = proxies

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Ids of all nodes."""
        return self._cluster.node_ids

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all nodes."""
        return self._cluster.bootstrap_servers

    @property
    def kafka_bootstrap_servers(self) -> str:
        """Addresses for Kafka clients; empty where they are not served."""
        return self._cluster.kafka_bootstrap_servers

    @property
    def cuts_links(self) -> bool:
        """True if a node can be isolated."""
        return self._proxies is not None

    def kill(self, node: int) -> None:
        """Sends SIGKILL."""
        _done(self._cluster.kill, node)

    def pause(self, node: int) -> None:
        """Sends SIGSTOP."""
        _done(self._cluster.pause, node)

    def resume(self, node: int) -> None:
        """Sends SIGCONT."""
        _done(self._cluster.resume, node)

    def start(self, node: int) -> None:
        """Starts it again with its data."""
        _done(self._cluster.start, node)

    def cut(self, node: int) -> None:
        """Cuts all links of a node, which keeps running."""
        self._links.isolate(node)

    def rejoin(self, node: int) -> None:
        """Restores the links of a node."""
        self._links.rejoin(node)

    @property
    def _links(self) -> LinkProxies:
        if self._proxies is None:
            raise NodeControlError("links can be cut on Linux only")
        return self._proxies


def _done(call: Callable[[int], None], node: int) -> None:
    from quorumlog.local import ClusterError

    try:
        call(node)
    except ClusterError as error:
        raise NodeControlError(str(error)) from None


@contextmanager
def playground_nodes(
    count: int, *, kafka: bool = False, settings: Mapping[str, str] | None = None
) -> Iterator[PlaygroundNodes]:
    """Runs a cluster while the block runs; its data is temporary.

    Arguments:
        settings: settings of every node, by name.
        kafka: nodes also serve Kafka clients, whose links are cut like all others.
    """
    from quorumlog.chaos.processes.link_proxy import LinkProxies
    from quorumlog.local import LocalCluster

    with ExitStack() as running:
        proxies = None
        with waiting("starting the nodes"):
            if not _SOCKETS.exists():
                cluster = LocalCluster(count, kafka=kafka, settings=settings)
            else:
                cluster = LocalCluster(count, kafka=kafka, settings=settings, advertise_host=_PROXIED_HOST)
                proxies = running.enter_context(LinkProxies(cluster.node_ids, _PROXIED_HOST, _ports(cluster)))
                proxies.lead_to({node: cluster.address(node) for node in cluster.node_ids}, cluster.pid)
            running.enter_context(cluster)
        yield PlaygroundNodes(cluster, proxies)


def _ports(cluster: LocalCluster) -> dict[int, list[int]]:
    """Returns the listening ports of each node."""
    served = [cluster.bootstrap_servers.split(",")]
    if cluster.kafka_bootstrap_servers:
        served.append(cluster.kafka_bootstrap_servers.split(","))
    return {
        node: [int(addresses[place].rpartition(":")[2]) for addresses in served]
        for place, node in enumerate(cluster.node_ids)
    }
