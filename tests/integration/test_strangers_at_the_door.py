"""Nobody who is no node gets a frame in where nodes listen. Whoever tries is told so, and so is the audit log."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from audit_log import audit_lines

from quorumlog.sdk import Admin, NewTopic, Producer
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.server.certificates import issuing
from quorumlog.server.certificates.issuing import Issued, create_authority, create_client, create_node
from quorumlog.server.local import ClusterError, LocalCluster
from quorumlog.v1 import peer_pb2

pytestmark = pytest.mark.cluster

DEADLINE_S = 60.0
SECOND = 1 / 86_400
#: The node that strangers go to, and one that is removed from the cluster.
ASKED, REMOVED = 1, 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    data = tmp_path_factory.mktemp("nodes")
    asking = {"authorization": True, "super_users": "User:admin", "audit_log": data / "audit.jsonl"}
    with LocalCluster(nodes=4, controllers=3, tls=True, data_dir=data, settings=asking) as running:
        yield running


def audited(cluster: LocalCluster, listener: str) -> list[dict[str, object]]:
    """What the node that strangers go to has told of them."""
    return [
        each
        for each in audit_lines(cluster.log_path(ASKED).parent / "audit.jsonl")
        if each["node"] == ASKED
        and (each["event"] == "peer_refused" or (each["event"], each.get("listener")) == ("handshake_failed", listener))
    ]


def one_more_line(
    cluster: LocalCluster, attempt: Callable[[], None], listener: str = "peer_listen"
) -> dict[str, object]:
    """The line that an attempt leaves: one, with one time."""
    before = len(audited(cluster, listener))
    attempt()
    deadline = time.monotonic() + DEADLINE_S
    while len(audited(cluster, listener)) == before:
        assert time.monotonic() < deadline, "nothing is told"
        time.sleep(0.05)
    (line,) = audited(cluster, listener)[before:]
    assert (line["times"], line["host"]) == (1, "127.0.0.1")
    return line


def say_hello(cluster: LocalCluster, pair: Issued, node_id: int) -> grpc.Call:
    """Opens a stream of frames as a node; returns how it ends."""
    certificates = cluster.certificates
    assert certificates is not None
    credentials = grpc.ssl_channel_credentials(
        certificates.node_ca.read_bytes(), pair.key.read_bytes(), pair.certificate.read_bytes()
    )
    # It knocks once: on a busy machine a second one could come before this one has heard what became of the first.
    expected = (
        ("grpc.ssl_target_name_override", f"node-{ASKED}.quorumlog.internal"),
        ("grpc.initial_reconnect_backoff_ms", 60_000), ("grpc.min_reconnect_backoff_ms", 60_000),
    )  # fmt: skip
    identity = peer_pb2.NodeIdentity(node_id=node_id)
    with grpc.secure_channel(cluster.peer_address(ASKED), credentials, expected) as channel:
        call = channel.unary_unary("/quorumlog.v1.Peer/Identify", bytes, bytes)
        with pytest.raises(grpc.RpcError) as refused:
            call(peer_pb2.IdentifyRequest(identity=identity).SerializeToString(), timeout=DEADLINE_S)
    assert isinstance(refused.value, grpc.Call)
    return refused.value


def test_whoever_is_no_node_is_refused_and_told_of(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = cluster.certificates
    assert certificates is not None

    def of(name: str) -> Issued:
        return Issued(certificates.folder / f"{name}.crt", certificates.folder / f"{name}.key")

    for name in ("over", "early", "other", "user"):
        (tmp_path / name).mkdir()
    over = create_node(tmp_path / "over", of("node-ca"), 2, [], -60 * SECOND)
    other = create_node(tmp_path / "other", create_authority(tmp_path / "other", "node-ca"), 2, [])
    mallory = create_client(tmp_path / "user", of("node-ca"), "mallory")
    monkeypatch.setattr(issuing, "_BACKDATED", -timedelta(days=1))
    early = create_node(tmp_path / "early", of("node-ca"), 2, [])

    # In the handshake: TLS says why to gRPC, and to nobody else.
    for pair in (of("admin"), over, early, other):
        line = one_more_line(cluster, lambda pair=pair: refused_in_the_handshake(cluster, pair))  # type: ignore[misc]
        assert (line["event"], line["listener"]) == ("handshake_failed", "peer_listen")
    for hello in (plaintext, old_tls):
        line = one_more_line(cluster, lambda hello=hello: hello(cluster))  # type: ignore[misc]
        assert (line["event"], line["listener"]) == ("handshake_failed", "peer_listen")

    # Behind it: the certificate is a node's, or was meant to be, and not that of who speaks.
    for pair, principal in ((of("node-2"), "Node:2"), (mallory, "User:mallory")):
        line = one_more_line(cluster, lambda pair=pair: refused_by_name(cluster, pair))  # type: ignore[misc]
        assert (line["event"], line["peer"], line["principal"]) == ("peer_refused", 3, principal)


def refused_in_the_handshake(cluster: LocalCluster, pair: Issued) -> None:
    assert say_hello(cluster, pair, 2).code() is grpc.StatusCode.UNAVAILABLE


def refused_by_name(cluster: LocalCluster, pair: Issued) -> None:
    refused = say_hello(cluster, pair, 3)
    assert refused.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "node 3" in (refused.details() or "")


def connect(cluster: LocalCluster) -> socket.socket:
    host, _, port = cluster.peer_address(ASKED).rpartition(":")
    return socket.create_connection((host, int(port)), DEADLINE_S)


def plaintext(cluster: LocalCluster) -> None:
    with connect(cluster) as raw:
        raw.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        answer = raw.recv(65_536)
        assert not answer or answer[0] == 0x15, "an alert of TLS, or nothing"


def old_tls(cluster: LocalCluster) -> None:
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with connect(cluster) as raw, pytest.raises((ssl.SSLError, ConnectionError)):
        old.wrap_socket(raw)


def test_clients_with_no_business_there_are_told_of_too(cluster: LocalCluster) -> None:
    host, _, port = cluster.address(ASKED).rpartition(":")

    def attempt() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection((host, int(port)), DEADLINE_S) as raw,
            contextlib.suppress(OSError),
            context.wrap_socket(raw) as wrapped,
        ):
            wrapped.recv(100)

    line = one_more_line(cluster, attempt, "listen")
    assert (line["event"], line["listener"]) == ("handshake_failed", "listen")


def test_nodes_that_serve_clients_leave_no_line_where_they_serve_each_other(cluster: LocalCluster) -> None:
    def work() -> None:
        for number in range(5):
            with Admin(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls) as admin:
                admin.create_topics([NewTopic(f"orders-{number}", replica_assignments={0: [1, 2, 3]})])
            with Producer(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls) as producer:
                producer.send(f"orders-{number}", b"paid").result(DEADLINE_S)
        plaintext(cluster)

    assert one_more_line(cluster, work)["listener"] == "peer_listen"


def test_a_node_that_was_removed_is_refused_and_told_of(cluster: LocalCluster) -> None:
    def strike_off_and_start() -> None:
        cluster.stop(REMOVED)
        deadline = time.monotonic() + DEADLINE_S
        with Admin(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls) as admin:
            while REMOVED in {each.node_id for each in admin.describe_cluster().brokers}:
                with contextlib.suppress(QuorumlogError):  # It counts as up for a while.
                    admin.remove_node(REMOVED)
                assert time.monotonic() < deadline, "it is not removed"
                time.sleep(0.1)
        with contextlib.suppress(ClusterError):  # It may end before it has answered once.
            cluster.start(REMOVED)

    line = one_more_line(cluster, strike_off_and_start)
    assert (line["event"], line["peer"], line["principal"]) == ("peer_refused", REMOVED, f"Node:{REMOVED}")
    assert "removed" in str(line["reason"])
