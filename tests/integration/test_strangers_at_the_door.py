"""Only nodes get a frame in at node ports. The audit log names those whom TLS lets in and the node refuses."""

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

from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.server.certificates import issuing
from quorumlog.server.certificates.issuing import Issued, create_authority, create_client, create_node
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


def audited(cluster: LocalCluster) -> list[dict[str, object]]:
    """Returns what the node that strangers connect to has written about them."""
    lines = audit_lines(cluster.log_path(ASKED).parent / "audit.jsonl")
    return [each for each in lines if (each["node"], each["event"]) == (ASKED, "peer_refused")]


def one_more_line(cluster: LocalCluster, attempt: Callable[[], None]) -> dict[str, object]:
    """The line that an attempt leaves: one, with one time."""
    before = len(audited(cluster))
    attempt()
    deadline = time.monotonic() + DEADLINE_S
    while len(audited(cluster)) == before:
        assert time.monotonic() < deadline, "nothing is logged"
        time.sleep(0.05)
    (line,) = audited(cluster)[before:]
    assert (line["times"], line["host"]) == (1, "127.0.0.1")
    return line


def say_hello(cluster: LocalCluster, pair: Issued, node_id: int) -> grpc.Call:
    """Opens a stream of frames as a node; returns how it ends."""
    certificates = cluster.certificates
    assert certificates is not None
    credentials = grpc.ssl_channel_credentials(
        certificates.node_ca.read_bytes(), pair.key.read_bytes(), pair.certificate.read_bytes()
    )
    # It connects once: on a busy machine a second connection could arrive before the result of the first one.
    expected = (
        ("grpc.ssl_target_name_override", f"node-{ASKED}.quorumlog.internal"),
        ("grpc.initial_reconnect_backoff_ms", 60_000),
        ("grpc.min_reconnect_backoff_ms", 60_000),
    )
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

    # In the handshake, which gRPC does not report.
    for pair in (of("admin"), over, early, other):
        refused_in_the_handshake(cluster, pair)
    plaintext(cluster)
    old_tls(cluster)

    # Behind it: the certificate is a node's, or was intended as one, and not that of its sender.
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
