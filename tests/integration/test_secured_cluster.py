"""Certificates and permissions together, on real nodes: certificates say who one is, rules what one may do."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from quorumlog.local import LocalCluster
from quorumlog.sdk import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    Admin,
    NewTopic,
    Producer,
    ResourcePattern,
    ResourceType,
    UnknownTopicOrPartitionError,
)
from quorumlog.server.certificates.issuing import Issued, create_client
from quorumlog.v1 import admin_pb2, admin_pb2_grpc

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    asking = {"authorization": True, "super_users": "User:admin"}
    with LocalCluster(nodes=3, tls=True, settings=asking, env={"GRPC_VERBOSITY": "info"}) as running:
        with Admin(bootstrap_servers=running.bootstrap_servers, **running.client_tls) as admin:
            alice = ACL(
                "User:alice",
                ACLOperation.WRITE,
                ACLPermissionType.ALLOW,
                ResourcePattern(ResourceType.TOPIC, "orders", ACLResourcePatternType.LITERAL),
            )
            admin.create_acls([alice])
            # Last: once all nodes serve it, they also have the rules.
            admin.create_topics([NewTopic("orders", 1, 3)])
        yield running


def write_as(cluster: LocalCluster, user: str, folder: Path) -> int:
    certificates = cluster.certificates
    assert certificates is not None
    authority = Issued(certificates.folder / "client-ca.crt", certificates.folder / "client-ca.key")
    made = create_client(folder, authority, user)
    own = {"ssl_certificate_location": str(made.certificate), "ssl_key_location": str(made.key)}
    with Producer(bootstrap_servers=cluster.bootstrap_servers, **{**cluster.client_tls, **own}) as producer:
        return producer.send("orders", b"paid", partition=0).result(30).offset


def test_rules_are_about_the_user_of_the_certificate(cluster: LocalCluster, tmp_path: Path) -> None:
    assert write_as(cluster, "alice", tmp_path) == 0
    with pytest.raises(UnknownTopicOrPartitionError):
        write_as(cluster, "bob", tmp_path)


def test_a_nodes_certificate_is_its_permission_to_have_its_own_disk_given_up(cluster: LocalCluster) -> None:
    certificates = cluster.certificates
    assert certificates is not None
    folder = certificates.folder
    credentials = grpc.ssl_channel_credentials(
        certificates.node_ca.read_bytes(), (folder / "node-2.key").read_bytes(), (folder / "node-2.crt").read_bytes()
    )
    lost = admin_pb2.AlterNodeRequest(
        node_id=2, action=admin_pb2.NODE_ACTION_REPLACE_DISK, directory_id="another", timeout_ms=5_000
    )
    # The active controller decides, wherever it is: two of the three pass the request on to it.
    for node_id in cluster.node_ids:
        expected = (("grpc.ssl_target_name_override", f"node-{node_id}.quorumlog.internal"),)
        channel = grpc.secure_channel(cluster.peer_address(node_id), credentials, expected)
        with channel, pytest.raises(grpc.RpcError) as refused:
            admin_pb2_grpc.AdminStub(channel).AlterNode(lost, timeout=30)
        assert isinstance(refused.value, grpc.Call)
        assert refused.value.code() is not grpc.StatusCode.PERMISSION_DENIED
        assert "another" in (refused.value.details() or "")


def test_handshakes_that_fail_are_lines_of_a_node_that_was_asked_for_them(cluster: LocalCluster) -> None:
    def said() -> int:
        return cluster.log_path(2).read_text().count("Handshake failed")

    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    stranger.set_alpn_protocols(["h2"])
    for place in (cluster.address(2), cluster.peer_address(2)):
        host, _, port = place.rpartition(":")
        for context in (None, stranger):
            before = said()
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 10) as raw:
                if context is None:
                    raw.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                    raw.recv(100)
                else:
                    with context.wrap_socket(raw) as wrapped:
                        wrapped.recv(100)
            deadline = time.monotonic() + 30
            while said() == before:
                assert time.monotonic() < deadline, f"{place}: nothing was said"
                time.sleep(0.02)
            assert said() == before + 1
