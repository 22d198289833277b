"""The cluster behind ``quorumlog console --playground``: real processes of this machine, gone when the console ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from quorumlog.cli.progress import waiting
from quorumlog.console.playground.controls import NodeControlError

if TYPE_CHECKING:
    from quorumlog.server.local import LocalCluster


class PlaygroundNodes:
    """A local cluster as the console's page may handle it."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Ids of all nodes."""
        return self._cluster.node_ids

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all nodes."""
        return self._cluster.bootstrap_servers

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


def _done(call: Callable[[int], None], node: int) -> None:
    from quorumlog.server.local import ClusterError

    try:
        call(node)
    except ClusterError as error:
        raise NodeControlError(str(error)) from None


@contextmanager
def playground_nodes(count: int) -> Iterator[PlaygroundNodes]:
    """A cluster that is there while the block runs; its data is temporary."""
    from quorumlog.server.local import LocalCluster

    with ExitStack() as running:
        with waiting("starting the nodes"):
            cluster = running.enter_context(LocalCluster(count))
        yield PlaygroundNodes(cluster)
