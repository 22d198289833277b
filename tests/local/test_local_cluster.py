"""LocalCluster: real processes that come up, take what tests do to them, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as kafka_client
import psutil
import pytest
from child_process import ChildProcess

from quorumlog.local import ClusterError, LocalCluster, NodesSlowError
from quorumlog.local.cleanup_process import start_time
from quorumlog.local.ports import ReservedPorts
from quorumlog.storage.quarantine import ID_FILE
from tests.support.command_line import leader_of, until

pytestmark = pytest.mark.cluster


def is_gone(pid: int) -> bool:
    return start_time(pid) == ""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3) as running:
        yield running


def test_every_node_is_ready_when_the_block_begins(cluster: LocalCluster) -> None:
    assert cluster.node_ids == cluster.controller_ids == (1, 2, 3)
    until(lambda: [status.ready for status in cluster.status()] == [True, True, True])
    assert cluster.bootstrap_servers == ",".join(cluster.address(node) for node in (1, 2, 3))
    assert leader_of(cluster) in cluster.node_ids
    assert cluster.leader("no-such-topic", 0) is None
    assert all(cluster.log_path(node).stat().st_size for node in cluster.node_ids)


def test_a_killed_controller_is_replaced_and_comes_back_on_its_data(cluster: LocalCluster) -> None:
    killed = leader_of(cluster)
    # A node that serves writes down whose data these are a moment later.
    until((cluster.data_dir(killed) / ID_FILE).exists)
    directory = sorted(path.name for path in cluster.data_dir(killed).iterdir())
    cluster.kill(killed)
    assert cluster.pid(killed) is None
    assert not cluster.is_running(killed)
    until(lambda: cluster.leader() not in (None, killed))
    cluster.start(killed)
    cluster.wait_ready()
    assert sorted(path.name for path in cluster.data_dir(killed).iterdir()) == directory


def test_a_paused_controller_loses_its_place_and_follows_when_resumed(cluster: LocalCluster) -> None:
    paused = leader_of(cluster)
    cluster.pause(paused)
    try:
        until(lambda: cluster.leader() not in (None, paused))
        # Its connections stay open, so the others detect it only because it does not answer.
        other = next(node for node in cluster.node_ids if node != paused)
        until(lambda: f"link_broken node={other} peer={paused}" in cluster.log_path(other).read_text())
    finally:
        cluster.resume(paused)
    cluster.wait_ready()
    assert cluster.is_running(paused)


def test_a_stopped_node_ends_well(cluster: LocalCluster) -> None:
    stopped = leader_of(cluster)
    cluster.stop(stopped)
    assert "node_stopped" in cluster.log_path(stopped).read_text()
    with pytest.raises(ClusterError, match="is not running"):
        cluster.kill(stopped)
    cluster.start(stopped)
    cluster.wait_ready()
    with pytest.raises(ClusterError, match="is running already"):
        cluster.start(stopped)


def test_an_unknown_node_is_named(cluster: LocalCluster) -> None:
    with pytest.raises(ClusterError, match="node 9 does not exist: the nodes are 1, 2, 3"):
        cluster.kill(9)


def test_nothing_is_left_after_an_exception() -> None:
    class StoryError(Exception):
        pass

    before = {child.pid for child in psutil.Process().children()}
    cluster = LocalCluster(nodes=1)

    def story() -> None:
        with cluster:
            assert cluster.is_running(1)
            raise StoryError

    with pytest.raises(StoryError):
        story()
    assert not cluster.root.exists()
    # One that another test has left may have been reaped in the meantime.
    assert {child.pid for child in psutil.Process().children()} <= before


_OWNER = """
import sys, time
from quorumlog.local import LocalCluster
with LocalCluster(nodes=2, controllers=1) as cluster:
    cluster.pause(2)
    print(cluster.root, cluster.pid(1), cluster.pid(2), flush=True)
    while True:  # a signal just before one long sleep would not be seen until its end
        time.sleep(0.05)
"""


def test_nothing_is_left_when_the_owner_is_killed_not_even_a_paused_node() -> None:
    with ChildProcess([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        root, *pids = owner.stdout.readline().split()
        assert len(pids) == 2
        assert Path(root).exists()
        owner.send_signal(signal.SIGKILL)
    until(lambda: all(is_gone(int(pid)) for pid in pids))
    until(lambda: not Path(root).exists())


def test_ctrl_c_ends_the_nodes_in_order() -> None:
    with ChildProcess([sys.executable, "-c", _OWNER], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as owner:
        try:
            assert owner.stdout is not None
            root, *pids = owner.stdout.readline().decode().split()
            owner.send_signal(signal.SIGINT)
            owner.communicate(timeout=60)
        finally:
            owner.kill()
    assert all(is_gone(int(pid)) for pid in pids)
    assert not Path(root).exists()


def test_a_forked_child_leaves_the_cluster_alone() -> None:
    with LocalCluster(nodes=1) as cluster:
        child = os.fork()
        if child == 0:
            cluster.shutdown()
            os._exit(0)
        os.waitpid(child, 0)
        assert cluster.is_running(1)
        assert cluster.root.exists()


def test_kept_data_goes_on_at_the_same_addresses(tmp_path: Path) -> None:
    with LocalCluster(nodes=1, data_dir=tmp_path) as first:
        addresses = first.bootstrap_servers
        # No one else gets its ports until it is left.
        first.shutdown()
        with LocalCluster(nodes=1, data_dir=tmp_path) as second:
            assert second.bootstrap_servers == addresses
    with pytest.raises(ClusterError, match=r"has a cluster of 1 nodes at 127\.0\.0\.1:\d+: start it with the same"):
        LocalCluster(nodes=3, data_dir=tmp_path)


def test_kafkas_clients_are_served_at_ports_of_their_own_that_stay(tmp_path: Path) -> None:
    with LocalCluster(nodes=1, data_dir=tmp_path, kafka=True, tls=True) as first:
        servers = first.kafka_bootstrap_servers
        host, _, port = servers.rpartition(":")
        socket.create_connection((host, int(port)), timeout=10).close()
        assert servers not in (first.bootstrap_servers, first.peer_address(1))
        first.shutdown()
        with LocalCluster(nodes=1, data_dir=tmp_path) as second:
            assert second.kafka_bootstrap_servers == servers


def mention(cluster: LocalCluster, topic: str) -> None:
    """Sends a record to a topic that does not exist."""
    errors: list[object] = []
    producer = kafka_client.Producer({"bootstrap.servers": cluster.kafka_bootstrap_servers, "log_level": 0})
    producer.produce(topic, b"value", on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]


def test_kafkas_clients_are_served_on_existing_data(tmp_path: Path) -> None:
    """A topic that a client mentions is created there, too."""
    with LocalCluster(nodes=1, data_dir=tmp_path) as first:
        assert first.kafka_bootstrap_servers == ""
    for kafka in (True, False):
        with LocalCluster(nodes=1, data_dir=tmp_path, kafka=kafka) as again:
            mention(again, f"mentioned-{kafka}")


def test_a_slow_start_keeps_the_nodes_running(tmp_path: Path) -> None:
    slow = LocalCluster(nodes=1, data_dir=tmp_path, detached=True)
    try:
        with pytest.raises(NodesSlowError, match=r"node 1 is not ready after 0 s: .*; its log is .*node-1\.log"):
            slow.up(timeout_s=0)
        assert slow.is_running(1)
        LocalCluster.attach(tmp_path).wait_ready()
    finally:
        slow.shutdown()
    with LocalCluster(nodes=1) as temporary:
        temporary.kill(1)
        temporary._spawn(temporary._nodes[1])
        with pytest.raises(NodesSlowError, match="last line of its log"):
            temporary.wait_ready(timeout_s=-1)


def test_a_detached_cluster_outlives_its_owner_and_is_found_again(tmp_path: Path) -> None:
    starter = (
        "import sys\nfrom quorumlog.local import LocalCluster\n"
        "LocalCluster(nodes=1, data_dir=sys.argv[1], detached=True).up()"
    )
    subprocess.run([sys.executable, "-c", starter, str(tmp_path)], check=True, timeout=60)
    found = LocalCluster.attach(tmp_path)
    try:
        found.wait_ready()
        former = found.pid(1)
        assert former is not None
        found.kill(1)
        assert is_gone(former)
        found.start(1)
        found.wait_ready()
        again = LocalCluster.attach(tmp_path)
        assert again.pid(1) == found.pid(1) != former
        with pytest.raises(ClusterError, match="running already"):
            LocalCluster(nodes=1, data_dir=tmp_path).up()
    finally:
        found.shutdown()
    assert not LocalCluster.attach(tmp_path).is_running(1)


def test_a_pid_that_now_belongs_to_a_stranger_is_never_signalled(tmp_path: Path) -> None:
    cluster = LocalCluster(nodes=1, data_dir=tmp_path, detached=True)
    state = cluster._state
    state.nodes[0].pid, state.nodes[0].started = os.getpid(), "1"
    state.save(tmp_path)
    found = LocalCluster.attach(tmp_path)
    assert not found.is_running(1)
    found.shutdown()


def test_a_directory_without_a_cluster_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="quorumlog cluster up --data-dir"):
        LocalCluster.attach(tmp_path)


def test_a_node_that_cannot_start_is_an_error_with_its_own_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ClusterError, match=f"listen = .*: port {port} is in use by another process"):
            LocalCluster(nodes=1, base_port=port).up()
    with pytest.raises(ClusterError, match=r"unknown setting 'heartbeat_interval' .*did you mean"):
        LocalCluster(nodes=1, settings={"heartbeat_interval": 5}).up()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"nodes": 0}, "1 to 64 nodes, not 0"),
        ({"nodes": 2, "controllers": 3}, "1 to 2 can be controllers, not 3"),
        ({"base_port": 65_535}, "leaves fewer than 3 ports"),
        ({"detached": True}, "needs a data_dir"),
    ],
)
def test_arguments_that_make_no_cluster_are_refused(arguments: dict[str, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        LocalCluster(**arguments)  # type: ignore[arg-type]


def test_reserved_ports_are_given_to_nobody_else_but_can_be_listened_on() -> None:
    reserved = ReservedPorts(20)
    others = ReservedPorts(20)
    assert not set(reserved.ports) & set(others.ports)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", reserved.ports[0]))
        listener.listen()
    reserved.close()
    others.close()


def test_the_fixture_gives_a_running_cluster(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nquorumlog_cluster_nodes = 1\nasyncio_default_fixture_loop_scope = function\n")
    pytester.makepyfile(
        """
        import psutil, sys

        def test_uses_it(quorumlog_cluster):
            quorumlog_cluster.wait_ready()
            parent = psutil.Process(quorumlog_cluster.pid(1)).parent()
            assert ("quorumlog.local.node_spawner" in parent.cmdline()) == (sys.platform == "linux")
        """
    )
    pytester.runpytest_subprocess().assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("quorumlog_cluster_scope = sesion", "'sesion': choose from session, package, module, class, function"),
        ("quorumlog_cluster_scope =", "'': choose from session, package, module, class, function"),
        ("quorumlog_cluster_nodes = three", "'three': use a number from 1 to 64"),
        ("quorumlog_cluster_nodes = 0", "'0': use a number from 1 to 64"),
        ("quorumlog_cluster_nodes = -1", "'-1': use a number from 1 to 64"),
        ("quorumlog_cluster_nodes = 65", "'65': use a number from 1 to 64"),
        (f"quorumlog_cluster_nodes = {'9' * 5000}", "use a number from 1 to 64"),
        ("quorumlog_cluster_kafka = ja", "'ja': choose from true, false"),
    ],
)
def test_mistyped_pytest_settings(pytester: pytest.Pytester, setting: str, words: str) -> None:
    """A wrong value ends the run with one line that names the setting and its values."""
    pytester.makeini(f"[pytest]\nasyncio_default_fixture_loop_scope = function\n{setting}\n")
    pytester.makepyfile("def test(quorumlog_cluster): ...")
    done = pytester.runpytest_subprocess()
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    [line] = [line for line in done.errlines if line]
    assert line.startswith(f"ERROR: {setting.partition(' ')[0]}")
    assert words in line


def test_topics_of_a_test_do_not_leak_into_the_next_one_of_a_session(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        "[pytest]\nquorumlog_cluster_nodes = 1\nquorumlog_cluster_scope = session\n"
        "asyncio_default_fixture_loop_scope = function\n"
    )
    one_test = """
        from quorumlog.sdk import Admin

        seen = []

        def test_it(quorumlog_cluster, quorumlog_topic):
            with Admin(bootstrap_servers=quorumlog_cluster.bootstrap_servers) as admin:
                assert admin.list_topics() == []
                made = quorumlog_topic("orders", partitions=2, configs={"cleanup.policy": "compact"})
                gone = quorumlog_topic()
                [topic] = admin.describe_topics([made])
                admin.delete_topics([gone])
            assert made.startswith("orders-") and gone.startswith("test-")
            assert (len(topic.partitions), topic.configs["cleanup.policy"]) == (2, "compact")
        """
    pytester.makepyfile(test_first=one_test, test_second=one_test)
    pytester.runpytest_subprocess().assert_outcomes(passed=2)


@pytest.mark.parametrize("keeps_its_data", [True, False])
def test_a_cluster_that_is_left_gives_its_ports_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps_its_data: bool
) -> None:
    """A socket that is left open is complained of in whatever test of the process looks for such."""
    monkeypatch.setattr(LocalCluster, "up", lambda cluster: None)
    with LocalCluster(nodes=2, data_dir=tmp_path if keeps_its_data else None) as cluster:
        ports = [int(cluster.address(node).rpartition(":")[2]) for node in cluster.node_ids]
        for port in ports:
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", port))
    for port in ports:
        with socket.socket() as other:
            other.bind(("127.0.0.1", port))
