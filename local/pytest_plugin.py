"""The pytest fixture ``quorumlog_cluster``: a running cluster for tests.

Installed with the package (entry point ``pytest11``); nothing of the cluster is imported before a test requests it.

In ``pytest.ini`` or ``pyproject.toml``:

- ``quorumlog_cluster_scope``: ``module`` (default: tests of one file share a cluster), ``session``, ``class`` or
  ``function``. A test that kills nodes should leave them running again, or use ``function``.
- ``quorumlog_cluster_nodes``: how many nodes, 3 by default.
- ``quorumlog_cluster_kafka``: ``true`` to also serve Kafka's own clients, at ``kafka_bootstrap_servers``.
- ``quorumlog_cluster_settings``: settings of every node, one ``KEY=VALUE`` in a line.

Topics that no other test sees come from ``quorumlog_topic`` (:mod:`quorumlog.sdk.admin.topics_for_tests`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, get_args

import pytest

from quorumlog.local.state import MAX_NODES

if TYPE_CHECKING:
    from quorumlog.local.cluster import LocalCluster

Scope = Literal["session", "package", "module", "class", "function"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declares the settings."""
    parser.addini("quorumlog_cluster_scope", "scope of the fixture quorumlog_cluster", default="module")
    parser.addini("quorumlog_cluster_kafka", "serve Kafka's own clients", type="bool", default=False)
    parser.addini("quorumlog_cluster_nodes", "number of nodes of a quorumlog_cluster", default="3")
    parser.addini("quorumlog_cluster_settings", "settings of its nodes: KEY=VALUE", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Checks the settings.

    Raises:
        pytest.UsageError: an invalid value; names the setting and the valid ones.
    """
    scopes = get_args(Scope)
    scope = config.getini("quorumlog_cluster_scope")
    if scope not in scopes:
        raise pytest.UsageError(f"quorumlog_cluster_scope = {scope!r:.80}: choose from {', '.join(scopes)}")
    try:
        config.getini("quorumlog_cluster_kafka")
    except (ValueError, pytest.UsageError) as error:  # The type depends on pytest's version.
        raise pytest.UsageError(f"quorumlog_cluster_kafka: {error}: choose from true, false") from None
    nodes = config.getini("quorumlog_cluster_nodes")
    if not (nodes.isascii() and nodes.isdecimal() and len(nodes) < 10 and 1 <= int(nodes) <= MAX_NODES):
        raise pytest.UsageError(f"quorumlog_cluster_nodes = {nodes!r:.80}: use a number from 1 to {MAX_NODES}")


def _scope(fixture_name: str, config: pytest.Config) -> Scope:
    scope: Scope = config.getini("quorumlog_cluster_scope")
    return scope


def _settings(config: pytest.Config) -> dict[str, str]:
    settings: dict[str, str] = {}
    for line in config.getini("quorumlog_cluster_settings"):
        name, equals, value = line.partition("=")
        if not equals:
            raise pytest.UsageError(f"quorumlog_cluster_settings: {line!r} is not KEY=VALUE")
        settings[name.strip()] = value.strip()
    return settings


@pytest.fixture(scope="session")
def _quorumlog_nodes_are_forked() -> Iterator[None]:
    from quorumlog.local.node_spawner import forked_nodes

    with forked_nodes():
        yield


@pytest.fixture(scope=_scope)
def quorumlog_cluster(pytestconfig: pytest.Config, _quorumlog_nodes_are_forked: None) -> Iterator[LocalCluster]:
    """A cluster of real node processes on free loopback ports; removed completely afterwards."""
    from quorumlog.local import LocalCluster

    nodes = int(pytestconfig.getini("quorumlog_cluster_nodes"))
    kafka = bool(pytestconfig.getini("quorumlog_cluster_kafka"))
    with LocalCluster(nodes=nodes, kafka=kafka, settings=_settings(pytestconfig)) as cluster:
        yield cluster
