"""The cluster behind ``quorumlog console --playground``: real processes of this machine, gone when the console ends."""

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

#: Whose a connection is, is read here. Only Linux has it.
_SOCKETS = Path("/proc/net/tcp")
#: Where nodes are reached whose links can be cut, each of their listeners at its own port: there are the proxies.
_PROXIED_HOST = "127.0.0.2"


class PlaygroundNodes:
    """A local cluster as the console's page may handle it.

    Arguments:
        proxies: through which all of its links go; None where links cannot be cut.
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
        """Where Kafka's own clients reach the nodes; empty where they are not served."""
        return self._cluster.kafka_bootstrap_servers

    @property
    def cuts_links(self) -> bool:
        """Whether a node can be cut off."""
        return self._proxies is not None

    def kill(self, node: int) -> None:
        """SIGKILL."""
        _done(self._cluster.kill, node)

    def pause(self, node: int) -> None:
        """SIGSTOP."""
        _done(self._cluster.pause, node)

    def resume(self, node: int) -> None:
        """SIGCONT."""
        _done(self._cluster.resume, node)

    def start(self, node: int) -> None:
        """Starts it again on its data."""
        _done(self._cluster.start, node)

    def cut(self, node: int) -> None:
        """Nothing gets to it or away from it any more; it runs on."""
        self._links.isolate(node)

    def rejoin(self, node: int) -> None:
        """Its links carry again."""
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
    """A cluster that is there while the block runs; its data is temporary.

    Arguments:
        settings: of every node, by name.
        kafka: nodes also serve Kafka's own clients, whose links are cut like all others.
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
    """Where each node listens."""
    served = [cluster.bootstrap_servers.split(",")]
    if cluster.kafka_bootstrap_servers:
        served.append(cluster.kafka_bootstrap_servers.split(","))
    return {
        node: [int(addresses[place].rpartition(":")[2]) for addresses in served]
        for place, node in enumerate(cluster.node_ids)
    }
