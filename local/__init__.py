"""`LocalCluster`: real node processes on this machine, for tests, notebooks and demos; the pytest plug-in.

- `cluster`: `LocalCluster` itself.
- `cluster_settings`: which settings of its nodes a caller may choose, and their checks.
- `node_process`: one node process: started, signalled, and distinguished from an unrelated process with its pid.
- `node_spawner`: processes that fork nodes, which makes many starts fast.
- `ports`: free loopback ports that stay free until nodes use them.
- `certificates`: its authorities, and certificates of nodes and users.
- `cluster_probe`: what its nodes report about themselves and each other.
- `state`: `cluster.json`, from which a later process continues.
- `cleanup_process`: cleans up after a cluster whose owner was killed.
- `pytest_plugin`: the fixture `quorumlog_cluster`.

May import: `server`, `v1`.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorumlog.local.cluster import LocalCluster, NodeStatus
    from quorumlog.local.node_process import (
        ClusterError,
        ClusterSettingsError,
        NodesSlowError,
        NodeWaitsError,
    )

_MODULES = {
    "ClusterError": "node_process",
    "ClusterSettingsError": "node_process",
    "LocalCluster": "cluster",
    "NodeStatus": "cluster",
    "NodeWaitsError": "node_process",
    "NodesSlowError": "node_process",
}

__all__ = [
    "ClusterError",
    "ClusterSettingsError",
    "LocalCluster",
    "NodeStatus",
    "NodeWaitsError",
    "NodesSlowError",
]


def __getattr__(name: str) -> Any:
    # Imported on first use: every run of pytest imports the plug-in.
    if name in _MODULES:
        # Otherwise gRPC's C core would print to the stderr of a test run or notebook. It reads the variable when
        # imported.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
