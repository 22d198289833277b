"""Settings of a local cluster are checked before anything starts; none of these tests starts a node."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest

from quorumlog.local import ClusterError, ClusterSettingsError, LocalCluster, NodesSlowError
from quorumlog.local.cleanup_process import start_time
from quorumlog.local.cluster_probe import NodeView
from quorumlog.local.cluster_settings import DECIDED, check_settings, unused_variables
from quorumlog.local.node_process import NodeProcess


def refusal(settings: dict[str, str], nodes: int = 3, *, tls: bool = False, kafka: bool = False) -> str:
    with pytest.raises(ClusterSettingsError) as refused:
        check_settings(settings, {}, nodes=nodes, tls=tls, kafka=kafka)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("name", ["kafka_auto_create_topic_enable", "kafka.auto.create.topics.enable"])
def test_misspelled_settings_get_a_suggestion(name: str) -> None:
    assert f"unknown setting '{name}'" in refusal({name: "true"}, kafka=True)
    assert "did you mean 'kafka_auto_create_topics_enable'?" in refusal({name: "true"}, kafka=True)


@pytest.mark.parametrize("name", sorted(DECIDED))
def test_what_the_cluster_decides_is_refused(name: str) -> None:
    assert refusal({name: "127.0.0.1:9"}) == f"{name} cannot be set for a local cluster: {DECIDED[name]}"


def test_nodes_share_no_address() -> None:
    assert "cannot be set for all 3 nodes" in refusal({"metrics_listen": "127.0.0.1:9100"})
    check_settings({"metrics_listen": "127.0.0.1:9100"}, {}, nodes=1, tls=False, kafka=False)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("election_timeout_ms", "soon", "wrong value 'soon' for election_timeout_ms"),
        ("broker_session_timeout_ms", "10", "broker_session_timeout_ms"),
        ("kafka_security_protocol", "SSL", "kafka_security_protocol is set without kafka_listen"),
    ],
)
def test_wrong_values_are_refused(name: str, value: str, said: str) -> None:
    assert said in refusal({name: value})


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("kafka", [False, True])
def test_right_settings_pass(monkeypatch: pytest.MonkeyPatch, tls: bool, kafka: bool) -> None:
    """Whatever the environment of this process says: the nodes do not get it."""
    monkeypatch.setenv("QUORUMLOG_ELECTION_TIMEOUT_MS", "nonsense")
    own: dict[int, dict[str, object]] = {2: {"rack": "b"}}
    check_settings({"log_level": "debug", "rack": "a"}, own, nodes=3, tls=tls, kafka=kafka)
    with pytest.raises(ClusterSettingsError, match="unknown setting 'rak'"):
        check_settings({}, {3: {"rak": "a"}}, nodes=3, tls=tls, kafka=kafka)


def test_nothing_is_left_of_a_refused_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(ClusterSettingsError, match="did you mean 'rack'"):
        LocalCluster(settings={"rak": "a"})
    assert not list(tmp_path.iterdir())


def test_unused_variables_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("QUORUMLOG_")]:
        monkeypatch.delenv(variable)
    assert unused_variables() == []
    monkeypatch.setenv("QUORUMLOG_KAFKA_AUTO_CREATE_TOPICS_ENABLE", "false")
    monkeypatch.setenv("QUORUMLOG_DATA_DIR", "/somewhere")
    monkeypatch.setenv("QUORUMLOG_BOOTSTRAP_SERVERS", "127.0.0.1:19092")
    lines = unused_variables()
    assert len(lines) == 2
    advice = "use --set kafka_auto_create_topics_enable=false"
    assert any(line.startswith("QUORUMLOG_KAFKA_AUTO") and advice in line for line in lines)
    assert any(line.startswith("QUORUMLOG_DATA_DIR has no effect") and "--data-dir" in line for line in lines)


# -- directories that hold a cluster ------------------------------------------------------------------------------


def saved(place: Path, *, running: bool = False, nodes: int = 2, **settings: str) -> None:
    """Leaves a cluster in a directory, as if it had been started; ``running``: node 1 is this very process."""
    cluster = LocalCluster(nodes, data_dir=place, settings=settings, detached=True)
    if running:
        cluster._state.nodes[0].pid, cluster._state.nodes[0].started = os.getpid(), start_time(os.getpid())
    cluster._state.save(place)


def test_a_listener_is_added_to_existing_data(tmp_path: Path) -> None:
    """Its ports are kept: a later start finds the same, also without being asked for a listener."""
    saved(tmp_path)
    cluster = LocalCluster(2, data_dir=tmp_path, kafka=True)
    servers = cluster.kafka_bootstrap_servers
    assert len({*servers.split(","), *cluster.bootstrap_servers.split(",")}) == 4
    cluster._save()
    assert LocalCluster(2, data_dir=tmp_path).kafka_bootstrap_servers == servers
    assert [node["kafka_address"] for node in json.loads((tmp_path / "cluster.json").read_text())["nodes"]] == (
        servers.split(",")
    )


def test_a_running_cluster_gets_no_listener(tmp_path: Path) -> None:
    saved(tmp_path, running=True)
    with pytest.raises(ClusterError, match=r"is running without a listener for Kafka's clients: stop it first \(quor"):
        LocalCluster(2, data_dir=tmp_path, kafka=True)
    assert LocalCluster(2, data_dir=tmp_path).kafka_bootstrap_servers == ""


def test_settings_are_kept(tmp_path: Path) -> None:
    saved(tmp_path, log_level="debug")
    later = LocalCluster(2, data_dir=tmp_path, settings={"rack": "a"})
    assert later._state.settings == {"log_level": "debug", "rack": "a"}
    with pytest.raises(ClusterSettingsError, match="did you mean 'rack'"):
        LocalCluster(2, data_dir=tmp_path, settings={"rak": "b"})


def test_a_running_cluster_keeps_its_settings(tmp_path: Path) -> None:
    saved(tmp_path, running=True, log_level="debug")
    assert LocalCluster(2, data_dir=tmp_path, settings={"log_level": "debug"})._state.settings
    with pytest.raises(ClusterError, match="is running without log_level=info: stop it first"):
        LocalCluster(2, data_dir=tmp_path, settings={"log_level": "info"})


def test_auto_creation_is_a_default(tmp_path: Path) -> None:
    """On for Kafka's clients of a local cluster, unless it is set; never for a cluster without them."""
    name = "kafka_auto_create_topics_enable"
    started: list[dict[str, str]] = []

    def flags(kafka: bool, **settings: object) -> str | None:
        cluster = LocalCluster(1, kafka=kafka, settings=settings)
        node = cluster._nodes[1]
        node.spawn = lambda flags, env, life_line: started.append(dict(flags))  # type: ignore[method-assign]
        cluster._spawn(node)
        cluster.shutdown()
        return started[-1].get(name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalCluster, "_watched", lambda _self: None)
        assert flags(True) == "true"
        assert flags(True, **{name: False}) == "False"
        assert flags(False) is None


# -- a slow start -------------------------------------------------------------------------------------------------


class Views:
    """Returns what each node reports about itself."""

    def __init__(self, **views: NodeView) -> None:
        self._views = {int(name.removeprefix("node_")): view for name, view in views.items()}

    def node(self, node: int) -> NodeView:
        return self._views[node]


READY = NodeView(True, "", 1, frozenset({1}))


@pytest.mark.parametrize(
    ("views", "missing", "slow", "why"),
    [
        ({"node_1": READY, "node_3": NodeView(False, "not registered yet")}, [3], 3, "not registered yet"),
        ({"node_1": READY, "node_3": READY}, [3], 3, "node 1 does not see it in the cluster"),
        ({"node_1": NodeView(False, "no controller"), "node_3": READY}, [3], 1, "no controller"),
        (
            {"node_1": NodeView(False, "no controller"), "node_3": NodeView(False, "silent", answers=False)},
            [3],
            3,
            "silent",
        ),
        ({"node_1": NodeView(True, "", None)}, [], 1, "it reports no controller"),
    ],
)
def test_a_slow_start_names_one_node_and_its_log(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    views: dict[str, NodeView],
    missing: list[int],
    slow: int,
    why: str,
) -> None:
    monkeypatch.setattr(NodeProcess, "is_running", lambda _self: True)
    cluster = LocalCluster(3, data_dir=tmp_path / "kept", detached=True)
    error = cluster._slow(Views(**views), 1, missing, 60.0)  # type: ignore[arg-type]
    assert isinstance(error, NodesSlowError)
    expected = f"node {slow} is not ready after 60 s: {why}; its log is {cluster.log_path(slow)}"
    assert str(error) == expected
