"""A cluster whose nodes and clients identify each other by certificate."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import grpc
import pytest

from quorumlog.local import LocalCluster
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    Admin,
    Consumer,
    NewTopic,
    Producer,
    ResourcePattern,
    ResourceType,
)
from quorumlog.sdk.errors import IllegalArgumentError, NoBrokersAvailableError, SaslAuthenticationFailedError
from quorumlog.server.certificates import issuing
from quorumlog.server.certificates.issuing import Issued, create_authority, create_client, create_node
from quorumlog.v1 import admin_pb2, admin_pb2_grpc, data_plane_pb2, data_plane_pb2_grpc, peer_pb2

pytestmark = pytest.mark.cluster

LIMIT_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, tls=True) as running:
        yield running


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_clients_with_a_certificate_write_read_and_administer(cluster: LocalCluster) -> None:
    servers, tls = cluster.bootstrap_servers, cluster.client_tls
    with Admin(bootstrap_servers=servers, **tls) as admin:
        admin.create_topics([NewTopic("orders", num_partitions=3, replication_factor=3)])
        brokers = admin.describe_cluster().brokers
        assert {f"{each.host}:{each.port}" for each in brokers} == set(servers.split(","))
    with Producer(bootstrap_servers=servers, **tls) as producer:
        for number in range(100):
            producer.send("orders", b"%d" % number, key=b"%d" % number)
    # The bootstrap address of one node: the others, and the group's coordinator, are found where clients reach them.
    with Consumer(
        "orders", bootstrap_servers=cluster.address(1), group_id="g", auto_offset_reset="earliest", **tls
    ) as consumer:
        values: set[bytes | None] = set()
        until(
            lambda: values.update(r.value for rs in consumer.poll(500).values() for r in rs) or len(values) == 100,
            "not all records came",
        )
        consumer.commit()


def test_without_a_certificate_of_a_client_nobody_is_served(cluster: LocalCluster, tmp_path: Path) -> None:
    certificates = cluster.certificates
    assert certificates is not None
    stranger = create_client(tmp_path, create_authority(tmp_path, "other"), "alice")
    ca = str(certificates.node_ca)
    tried: list[dict[str, str]] = [
        {},
        {"security_protocol": "SSL", "ssl_ca_location": ca},
        {
            "security_protocol": "SSL",
            "ssl_ca_location": ca,
            "ssl_certificate_location": str(stranger.certificate),
            "ssl_key_location": str(stranger.key),
        },
        {
            "security_protocol": "SSL",
            "ssl_ca_location": ca,
            "ssl_certificate_location": str(certificates.folder / "node-1.crt"),
            "ssl_key_location": str(certificates.folder / "node-1.key"),
        },
        cluster.client_tls | {"ssl_ca_location": str(tmp_path / "other.crt")},
    ]
    for options in tried:
        with (
            pytest.raises(NoBrokersAvailableError) as refused,
            Admin(bootstrap_servers=cluster.address(1), bootstrap_timeout_ms=500, **options) as admin,
        ):
            admin.list_topics()
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"security_protocol": "TLS"}, "give PLAINTEXT or SSL"),
        ({"ssl_ca_location": "/proc/none"}, "security_protocol is not SSL"),
        ({"security_protocol": "SSL", "ssl_key_location": "k"}, "give both"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "SASL_SSL for sign-in by password"),
        ({"security_protocol": "SSL", "sasl_plain_password": "x"}, "security_protocol is not SASL_SSL"),
        ({"security_protocol": "SASL_SSL"}, "sasl_plain_username is not given"),
        ({"security_protocol": "SASL_SSL", "sasl_plain_username": "u"}, "sasl_plain_password is not given"),
        (
            {"security_protocol": "SASL_SSL", "sasl_plain_username": "u", "sasl_plain_password": "a\nb"},
            "sasl_plain_password has characters",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_plain_username": "u",
                "sasl_plain_password": "p",
                "sasl_mechanism": "PLAIN",
            },
            "give SCRAM-SHA-256",
        ),
        ({"security_protocol": "SSL", "ssl_ca_location": "/proc/none"}, "cannot read /proc/none"),
        ({"security_protocol": "SSL", "ssl_ca_location": "/proc/version"}, "not in PEM"),
    ],
)
def test_options_that_do_not_go_together_are_refused_in_one_line(options: dict[str, str], words: str) -> None:
    with (
        pytest.raises(IllegalArgumentError, match=words),
        Admin(bootstrap_servers="127.0.0.1:1", **options) as admin,
    ):
        admin.list_topics()


def handshake(address: str, context: ssl.SSLContext, name: str) -> str:
    """The version of TLS that a handshake agrees on."""
    host, _, port = address.rpartition(":")
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((host, int(port)), LIMIT_S) as raw,
        context.wrap_socket(raw, server_hostname=name) as s,
    ):
        return s.version() or ""


def test_old_versions_of_tls_and_plaintext_get_no_frame_in(cluster: LocalCluster) -> None:
    certificates = cluster.certificates
    assert certificates is not None
    context = ssl.create_default_context(cafile=str(certificates.node_ca))
    context.load_cert_chain(certificates.folder / "node-2.crt", certificates.folder / "node-2.key")
    assert handshake(cluster.peer_address(1), context, "node-1.quorumlog.internal") == "TLSv1.3"
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        handshake(cluster.peer_address(1), old, "node-1.quorumlog.internal")
    with socket.create_connection(("127.0.0.1", int(cluster.peer_address(1).rpartition(":")[2])), LIMIT_S) as plain:
        plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
        plain.settimeout(LIMIT_S)
        answer = plain.recv(65_536)
        assert not answer or answer[0] == 0x15, "an alert of TLS, or nothing"


def identify_as(cluster: LocalCluster, pair: Issued, node_id: int, asked: int = 1) -> grpc.RpcError | None:
    """Asks a node who it is, as another one; returns why it does not say."""
    certificates = cluster.certificates
    assert certificates is not None
    credentials = grpc.ssl_channel_credentials(
        certificates.node_ca.read_bytes(), pair.key.read_bytes(), pair.certificate.read_bytes()
    )
    expected = (("grpc.ssl_target_name_override", f"node-{asked}.quorumlog.internal"),)
    with grpc.secure_channel(cluster.peer_address(1), credentials, expected) as channel:
        call = channel.unary_unary("/quorumlog.v1.Peer/Identify", bytes, bytes)
        request = peer_pb2.IdentifyRequest(identity=peer_pb2.NodeIdentity(node_id=node_id))
        try:
            call(request.SerializeToString(), timeout=LIMIT_S)
        except grpc.RpcError as error:
            return error
    return None


def test_only_a_nodes_own_certificate_speaks_for_it(cluster: LocalCluster, tmp_path: Path) -> None:
    certificates = cluster.certificates
    assert certificates is not None

    def of(name: str) -> Issued:
        return Issued(certificates.folder / f"{name}.crt", certificates.folder / f"{name}.key")

    assert identify_as(cluster, of("node-2"), 2) is None
    other = identify_as(cluster, of("node-2"), 3)
    assert isinstance(other, grpc.Call) and other.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "node 3" in (other.details() or "")
    client = identify_as(cluster, of("admin"), 2)
    assert isinstance(client, grpc.Call) and client.code() is grpc.StatusCode.UNAVAILABLE
    stranger = create_node(tmp_path, create_authority(tmp_path, "other"), 2, [])
    unknown = identify_as(cluster, stranger, 2)
    assert isinstance(unknown, grpc.Call) and unknown.code() is grpc.StatusCode.UNAVAILABLE
    wrong = identify_as(cluster, of("node-2"), 2, asked=3)
    assert isinstance(wrong, grpc.Call) and wrong.code() is grpc.StatusCode.UNAVAILABLE
    # A user's certificate, signed by the authority of nodes by mistake, is still no node's.
    user = create_client(tmp_path, of("node-ca"), "mallory")
    mistaken = identify_as(cluster, user, 2)
    assert isinstance(mistaken, grpc.Call) and mistaken.code() is grpc.StatusCode.PERMISSION_DENIED


def test_a_node_may_have_its_own_disk_given_up_among_peers_and_nothing_else(cluster: LocalCluster) -> None:
    certificates = cluster.certificates
    assert certificates is not None
    folder = certificates.folder
    credentials = grpc.ssl_channel_credentials(
        certificates.node_ca.read_bytes(), (folder / "node-2.key").read_bytes(), (folder / "node-2.crt").read_bytes()
    )
    expected = (("grpc.ssl_target_name_override", "node-1.quorumlog.internal"),)
    with grpc.secure_channel(cluster.peer_address(1), credentials, expected) as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        for request in (
            admin_pb2.AlterNodeRequest(node_id=3, action=admin_pb2.NODE_ACTION_REPLACE_DISK),
            admin_pb2.AlterNodeRequest(node_id=2, action=admin_pb2.NODE_ACTION_REMOVE),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                stub.AlterNode(request, timeout=LIMIT_S)
            assert isinstance(refused.value, grpc.Call)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        with pytest.raises(grpc.RpcError) as absent:
            stub.DescribeNode(admin_pb2.DescribeNodeRequest(), timeout=LIMIT_S)
        assert isinstance(absent.value, grpc.Call)
        assert absent.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_peers_are_not_served_where_clients_are(cluster: LocalCluster) -> None:
    tls = cluster.client_tls
    credentials = grpc.ssl_channel_credentials(
        *(Path(tls[name]).read_bytes() for name in ("ssl_ca_location", "ssl_key_location", "ssl_certificate_location"))
    )
    with grpc.secure_channel(cluster.address(1), credentials) as channel:
        call = channel.unary_unary("/quorumlog.v1.Peer/Identify", bytes, bytes)
        with pytest.raises(grpc.RpcError) as absent:
            call(b"", timeout=LIMIT_S)
    assert isinstance(absent.value, grpc.Call)
    assert absent.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_commands_are_told_by_a_file_how_nodes_are_reached(cluster: LocalCluster, tmp_path: Path) -> None:
    assert cluster.certificates is not None
    properties = tmp_path / "client.properties"
    properties.write_text("# of admin\n" + cluster.certificates.properties.read_text())
    command = [sys.executable, "-m", "quorumlog.cli.main", "--command-config", str(properties)]
    environment = os.environ | {"QUORUMLOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    listed = subprocess.run(
        [*command, "cluster", "describe"], env=environment, check=False, capture_output=True, text=True, timeout=60
    )
    assert listed.returncode == 0, listed.stderr
    properties.write_text("security.protocol: SSL\n")
    wrong = subprocess.run(
        [*command, "topics", "list"], env=environment, check=False, capture_output=True, text=True, timeout=60
    )
    assert wrong.returncode == 2 and "line 1: expected KEY=VALUE" in wrong.stderr


def test_a_new_certificate_is_taken_without_a_restart(cluster: LocalCluster, tmp_path: Path) -> None:
    certificates = cluster.certificates
    assert certificates is not None
    folder = certificates.folder
    fresh = create_node(
        tmp_path, Issued(folder / "node-ca.crt", folder / "node-ca.key"), 1, ["127.0.0.1", "fresh.example"]
    )
    for name in ("node-1.key", "node-1.crt"):
        shutil.copy2(tmp_path / name, folder / f"{name}.new")
        os.replace(folder / f"{name}.new", folder / name)
    assert fresh.key.read_bytes() == (folder / "node-1.key").read_bytes()
    context = ssl.create_default_context(cafile=str(certificates.node_ca))
    context.load_cert_chain(folder / "admin.crt", folder / "admin.key")

    def is_served() -> bool:
        try:
            return bool(handshake(cluster.address(1), context, "fresh.example"))
        except ssl.SSLCertVerificationError:
            return False

    until(is_served, "the node serves with what it had at its start")
    until(lambda: "certificate_taken" in cluster.log_path(1).read_text(), "the node logs it")
    with Admin(bootstrap_servers=cluster.address(1), **cluster.client_tls) as admin:
        assert len(admin.describe_cluster().brokers) == 3


def test_a_node_does_not_start_with_a_key_that_others_may_read(tmp_path: Path) -> None:
    cluster = LocalCluster(nodes=1, tls=True, data_dir=tmp_path)
    assert cluster.certificates is not None
    (cluster.certificates.folder / "node-1.key").chmod(0o644)
    with pytest.raises(Exception, match="readable by users other than its owner"):
        cluster.up()


SECOND = 1 / 86_400


def options_of(pair: Issued, cluster: LocalCluster) -> dict[str, str]:
    return cluster.client_tls | {
        "ssl_certificate_location": str(pair.certificate),
        "ssl_key_location": str(pair.key),
    }


def test_a_certificate_that_is_over_or_not_begun_is_refused(
    cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = cluster.certificates
    assert certificates is not None
    folder = certificates.folder
    client_ca = Issued(folder / "client-ca.crt", folder / "client-ca.key")
    node_ca = Issued(folder / "node-ca.crt", folder / "node-ca.key")
    made: list[tuple[Issued, Issued]] = []
    over = -60 * SECOND
    made.append(
        (create_client(tmp_path / "1", client_ca, "late", over), create_node(tmp_path / "1", node_ca, 2, [], over))
    )
    monkeypatch.setattr(issuing, "_BACKDATED", -timedelta(days=1))
    made.append((create_client(tmp_path / "2", client_ca, "early"), create_node(tmp_path / "2", node_ca, 2, [])))
    for client, node in made:
        with (
            pytest.raises(NoBrokersAvailableError),
            Admin(
                bootstrap_servers=cluster.address(1), bootstrap_timeout_ms=500, **options_of(client, cluster)
            ) as admin,
        ):
            admin.list_topics()
        refused = identify_as(cluster, node, 2)
        assert isinstance(refused, grpc.Call)
        assert refused.code() is grpc.StatusCode.UNAVAILABLE


def test_calls_and_streams_end_with_their_certificate(cluster: LocalCluster, tmp_path: Path) -> None:
    certificates = cluster.certificates
    assert certificates is not None
    folder = certificates.folder
    client_ca = Issued(folder / "client-ca.crt", folder / "client-ca.key")
    short = create_client(tmp_path, client_ca, "short", days=10 * SECOND)
    credentials = grpc.ssl_channel_credentials(
        certificates.node_ca.read_bytes(), short.key.read_bytes(), short.certificate.read_bytes()
    )
    with grpc.secure_channel(cluster.address(1), credentials) as channel:
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)
        stub.Metadata(data_plane_pb2.MetadataRequest(), timeout=LIMIT_S)
        # A heartbeat stream of which nothing is asked: it ends all the same.
        over = threading.Event()

        def nothing() -> Iterator[data_plane_pb2.ProduceRequest]:
            over.wait(LIMIT_S)
            yield from ()

        with pytest.raises(grpc.RpcError) as ended:
            next(stub.Produce(nothing(), timeout=LIMIT_S))
        over.set()
        assert isinstance(ended.value, grpc.Call)
        assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED, ended.value.details()
        # The connection is still open, and gRPC would accept calls on it.
        with pytest.raises(grpc.RpcError) as late:
            stub.Metadata(data_plane_pb2.MetadataRequest(), timeout=LIMIT_S)
        assert isinstance(late.value, grpc.Call)
        assert late.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert "has expired" in (late.value.details() or "")


def test_clients_without_a_certificate_have_a_listener_of_their_own(tmp_path: Path) -> None:
    reserved = ReservedPorts(1)
    place = f"127.0.0.1:{reserved.ports[0]}"
    with LocalCluster(nodes=1, tls=True, settings={"password_listen": place}) as cluster:
        ca = cluster.client_tls["ssl_ca_location"]
        with (
            Admin(bootstrap_servers=place, security_protocol="SSL", ssl_ca_location=ca) as admin,
            # Their answers once they have authenticated: test_sign_in.py.
            pytest.raises(SaslAuthenticationFailedError, match="SASL_SSL"),
        ):
            admin.describe_cluster()
    reserved.close()


def https_context(authority: Path, pair: Issued | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority))
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    return context


def test_metrics_are_served_here_in_plain_and_elsewhere_to_whoever_may_see_them(tmp_path: Path) -> None:
    reserved = ReservedPorts(2)
    plain, secured = (f"127.0.0.1:{port}" for port in reserved.ports)
    settings = {
        "metrics_listen": plain,
        "metrics_tls_listen": secured,
        "authorization": True,
        "super_users": "User:admin",
    }
    with LocalCluster(nodes=1, tls=True, settings=settings) as cluster:
        certificates = cluster.certificates
        assert certificates is not None
        certificates.add_user("scraper")
        certificates.add_user("other")
        admins, scrapers, others = (
            Issued(certificates.folder / f"{name}.crt", certificates.folder / f"{name}.key")
            for name in ("admin", "scraper", "other")
        )

        def page(pair: Issued | None, path: str = "metrics") -> str:
            context = https_context(certificates.node_ca, pair)
            with urllib.request.urlopen(f"https://{secured}/{path}", timeout=LIMIT_S, context=context) as served:
                return served.read().decode()

        with urllib.request.urlopen(f"http://{plain}/metrics", timeout=LIMIT_S) as served:
            text = served.read().decode()
        (seconds,) = re.findall(r"^quorumlog_certificate_expiry_seconds ([0-9.e+]+)$", text, re.M)
        assert 396 * 86_400 < float(seconds) < 399 * 86_400
        assert "quorumlog_certificate_expiry_seconds" in page(admins)
        with Admin(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls) as admin:
            see = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")
            admin.create_acls([ACL("User:scraper", ACLOperation.DESCRIBE, ACLPermissionType.ALLOW, see)])
            assert "quorumlog_ready 1" in page(scrapers)
            # A client without permission is refused; it may see whether the node serves.
            with pytest.raises(urllib.error.HTTPError, match="403") as refused:
                page(others)
            assert "User:other has no permission for Describe on Cluster" in refused.value.read().decode()
            assert page(others, "readyz") == "ok\n"
            # Nor is anybody let in without a certificate, with one of another authority, of a node, or revoked.
            stranger = create_client(tmp_path, create_authority(tmp_path, "other-ca"), "scraper")
            nodes = Issued(certificates.folder / "node-1.crt", certificates.folder / "node-1.key")
            for pair in (None, stranger, nodes):
                with pytest.raises(OSError):  # noqa: PT011 - the connection ends, sooner or later in the handshake
                    page(pair)
            admin.revoke(principals=["User:scraper"])
            with pytest.raises(urllib.error.HTTPError, match="403"):
                page(scrapers)
        # A new certificate is served from the next connection on.
        folder = certificates.folder
        fresh = create_node(
            tmp_path, Issued(folder / "node-ca.crt", folder / "node-ca.key"), 1, ["127.0.0.1", "fresh.example"]
        )
        for path in fresh:
            os.replace(path, folder / path.name)
        context = https_context(certificates.node_ca, admins)

        def is_served() -> bool:
            host, _, port = secured.rpartition(":")
            with socket.create_connection((host, int(port)), LIMIT_S) as raw:
                try:
                    context.wrap_socket(raw, server_hostname="fresh.example").close()
                except ssl.SSLCertVerificationError:
                    return False
            return True

        until(is_served, "the node serves its pages with what it had at its start")
    reserved.close()


def two_ports_in_a_row(request: pytest.FixtureRequest) -> int:
    """The first of two ports that no one else is given while the test lasts. Who names them may listen there."""
    for _ in range(1_000):
        with ExitStack() as held:
            first = held.enter_context(socket.socket())
            second = held.enter_context(socket.socket())
            for each in (first, second):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                # Without leave to share it: another one may hold it as we do.
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port + 1))
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            request.addfinalizer(held.pop_all().close)
            return port
    raise AssertionError("no two ports in a row are free")


def test_a_cluster_of_the_command_line_has_all_that_it_needs(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QUORUMLOG_")}

    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "quorumlog.cli.main", *words]
        return subprocess.run(
            command, check=False, env=environment | more, capture_output=True, text=True, timeout=LIMIT_S
        )

    place = ("--data-dir", str(tmp_path / "c"))
    # Node 1 listens on the first port, for its peers on the next.
    base = two_ports_in_a_row(request)
    up = run("cluster", "up", "--tls", "--nodes", "1", "--base-port", str(base), "--detach", *place)
    try:
        assert up.returncode == 0, up.stderr
        (file,) = re.findall(r"^export QUORUMLOG_COMMAND_CONFIG=(\S+)", up.stdout, re.M)
        servers = {"QUORUMLOG_BOOTSTRAP_SERVERS": f"127.0.0.1:{base}"}
        assert run("cluster", "health", QUORUMLOG_COMMAND_CONFIG=file, **servers).returncode == 0
        assert run("topics", "list", **servers).returncode == 1
    finally:
        assert run("cluster", "down", *place).returncode == 0
    again = run("cluster", "up", "--detach", *place)
    assert again.returncode == 0, again.stderr
    assert run("cluster", "down", *place).returncode == 0
