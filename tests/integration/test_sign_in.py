"""Passwords, tokens and revocation on real nodes: who is let in, what continues, and what stays secret."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from child_process import ChildProcess
from command_line import all_have_heard, until
from grpc_health.v1 import health_pb2, health_pb2_grpc
from token_issuer import AUDIENCE, ISSUER, claims, token, write_keys

from quorumlog.local import LocalCluster
from quorumlog.local.node_spawner import separate_nodes
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    Admin,
    Consumer,
    NewTopic,
    OffsetAndMetadata,
    Producer,
    RequestTimedOutError,
    ResourcePattern,
    ResourceType,
    SaslAuthenticationFailedError,
    TopicAuthorizationFailedError,
    TopicPartition,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from quorumlog.sdk.cluster.blocking_session import BlockingSession
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.runtime.security import ClientSecurity
from quorumlog.sdk.spark.nodes import Nodes
from quorumlog.sdk.spark.servers import Servers
from quorumlog.v1 import data_plane_pb2, data_plane_pb2_grpc

pytestmark = pytest.mark.cluster

LIMIT_S = 60.0
#: Searched for in everything that the suite can see afterwards.
CANARY = "canary-9f1c-password"
ORDERS = TopicPartition("orders", 0)
ORDERS_PATTERN = ResourcePattern(ResourceType.TOPIC, "orders")
#: Where the nodes of the module keep their data and logs.
DATA: list[Path] = []
#: Where the first node shows its metrics.
METRICS = [""]
#: Tokens of sessions that tests have got hold of: searched for, too.
STOLEN: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def nodes_are_programs() -> Iterator[None]:
    """The system shows their command lines and environments."""
    with separate_nodes():
        yield


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.jsonl"


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The keys by which nodes verify tokens."""
    file = tmp_path_factory.mktemp("keys") / "keys.json"
    write_keys(file, "first")
    return file


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, audit_log: Path, key_file: Path) -> Iterator[LocalCluster]:
    reserved = ReservedPorts(4)
    places = {node: {"password_listen": f"127.0.0.1:{reserved.ports[node]}"} for node in (1, 2, 3)}
    places[1]["metrics_listen"] = METRICS[0] = f"127.0.0.1:{reserved.ports[0]}"
    asking = {
        "authorization": True,
        "super_users": "User:admin",
        "audit_log": audit_log,
        "log_level": "debug",
        "sasl_oauthbearer_jwks_file": key_file,
        "sasl_oauthbearer_expected_issuer": ISSUER,
        "sasl_oauthbearer_expected_audience": AUDIENCE,
    }
    data = tmp_path_factory.mktemp("nodes")
    DATA.append(data)
    with LocalCluster(nodes=3, tls=True, data_dir=data, settings=asking, node_settings=places) as running:
        running.password_servers = ",".join(each["password_listen"] for each in places.values())  # type: ignore[attr-defined]
        with Admin(bootstrap_servers=running.bootstrap_servers, **running.client_tls) as admin:
            orders = ResourcePattern(ResourceType.TOPIC, "orders")
            admin.create_acls(
                ACL(f"User:{user}", operation, ACLPermissionType.ALLOW, orders)
                for user in ("alice", "bob", "carol", "dave", "dora")
                for operation in (ACLOperation.READ, ACLOperation.WRITE)
            )
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", CANARY)])
            # Last: once all nodes serve them, they also have users and rules.
            admin.create_topics([NewTopic("orders", 1, 3), NewTopic("secret", 1, 3)])
        yield running
    reserved.close()


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls) as made:
        yield made


def signed_in(cluster: LocalCluster, user: str = "alice", password: str = CANARY) -> dict[str, str]:
    """Options of a client that authenticates by password."""
    return {
        "bootstrap_servers": cluster.password_servers,  # type: ignore[attr-defined]
        "security_protocol": "SASL_SSL",
        "ssl_ca_location": cluster.client_tls["ssl_ca_location"],
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


def cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of ``quorumlog``."""
    command = [sys.executable, "-m", "quorumlog.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def is_delivered(producer: Producer, value: bytes) -> bool:
    """True if a record is delivered within the producer's timeout: on a busy machine the first one may not be."""
    try:
        producer.send("orders", value, partition=0).result(LIMIT_S)
    except RequestTimedOutError:
        return False
    return True


def until_refused(attempt: Callable[[], object]) -> QuorumlogError:
    """The first refusal of something that continues for a while."""
    deadline = time.monotonic() + LIMIT_S
    last: object = "never attempted"
    while time.monotonic() < deadline:
        try:
            attempt()
            last = "it succeeded"
        except QuorumlogError as error:
            # What was under way just then may have taken effect: that fails, but no one refuses it.
            if error.definite:
                return error
            last = repr(error)
    raise AssertionError(f"it is still not refused after {LIMIT_S} s: {last}")


def test_who_signs_in_is_who_the_rules_say(cluster: LocalCluster) -> None:
    options = signed_in(cluster)
    with Producer(**options) as producer:
        offset = producer.send("orders", b"by alice", partition=0).result(LIMIT_S).offset
        with pytest.raises(QuorumlogError):
            producer.send("secret", b"x", partition=0).result(LIMIT_S)
    with Consumer(**options) as consumer:
        consumer.assign([ORDERS])
        consumer.seek(ORDERS, offset)
        assert next(iter(consumer)).value == b"by alice"
    with Admin(**options) as alices:
        places = {f"{each.host}:{each.port}" for each in alices.describe_cluster().brokers}
        assert places == set(options["bootstrap_servers"].split(",")), (
            "she receives the addresses that require passwords"
        )


def test_without_a_session_there_is_nothing_but_health(cluster: LocalCluster) -> None:
    options = signed_in(cluster)
    place = options["bootstrap_servers"].split(",")[0]
    credentials = grpc.ssl_channel_credentials(Path(options["ssl_ca_location"]).read_bytes())
    with grpc.secure_channel(place, credentials) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=LIMIT_S)
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        stub = data_plane_pb2_grpc.DataPlaneStub(channel)
        for metadata in ((), (("authorization", "Session " + "A" * 43),), (("authorization", "Bearer x"),)):
            with pytest.raises(grpc.RpcError) as refused:
                stub.Metadata(data_plane_pb2.MetadataRequest(), timeout=LIMIT_S, metadata=metadata)
            assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]
        request = data_plane_pb2.FetchRequest(
            partitions=[data_plane_pb2.FetchPartition(topic_id=b"t" * 16, partition=0)]
        )
        with pytest.raises(grpc.RpcError) as ended:
            next(stub.Fetch(iter([request]), timeout=LIMIT_S))
        assert ended.value.code() is grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]
        over = threading.Event()

        def nothing() -> Iterator[data_plane_pb2.ProduceRequest]:
            over.wait(LIMIT_S)
            yield from ()

        with pytest.raises(grpc.RpcError) as silent:
            next(stub.Produce(nothing(), timeout=LIMIT_S / 2))
        over.set()
        assert silent.value.code() is grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong-" + CANARY), ("nobody", CANARY)])
def test_a_wrong_password_is_one_clear_error(cluster: LocalCluster, user: str, password: str) -> None:
    options = signed_in(cluster, user, password)
    with Admin(**options) as wrong, pytest.raises(SaslAuthenticationFailedError) as refused:
        wrong.list_topics()
    assert "the user name or the password is wrong" in refused.value.message
    assert (refused.value.definite, refused.value.retriable) == (True, False)
    assert CANARY not in repr(refused.value)
    assert CANARY not in repr(wrong)


def test_a_node_that_restarts_is_signed_in_to_again_without_an_error(cluster: LocalCluster) -> None:
    options = signed_in(cluster)
    with Producer(**options) as producer, Admin(**options) as alices:
        producer.send("orders", b"before", partition=0).result(LIMIT_S)
        for node in cluster.node_ids:
            cluster.stop(node)
            cluster.start(node)
            producer.send("orders", b"after", partition=0).result(LIMIT_S)
            assert "orders" in alices.list_topics()


def test_tasks_of_spark_sign_in_too(cluster: LocalCluster) -> None:
    given = signed_in(cluster)
    servers = given.pop("bootstrap_servers")
    nodes = Nodes(Servers(servers, ClientSecurity(**given)))
    assert nodes.topic_names(newest=False) == ["orders"]
    for node in cluster.node_ids:
        cluster.stop(node)
        cluster.start(node)
    assert nodes.topic_names(newest=True) == ["orders"], "in new sessions"
    wrong = Nodes(Servers(servers, ClientSecurity(**given | {"sasl_plain_password": "wrong"})))
    with pytest.raises(SaslAuthenticationFailedError, match="password is wrong"):
        wrong.topic_names(newest=False)
    elsewhere = Nodes(Servers(cluster.bootstrap_servers, ClientSecurity(**given)))
    with pytest.raises(QuorumlogError):
        elsewhere.topic_names(newest=False)


def test_a_deleted_user_is_out_at_once(cluster: LocalCluster, admin: Admin) -> None:
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", "a password of bob's")])
    all_have_heard(admin)
    with Producer(**signed_in(cluster, "bob", "a password of bob's"), delivery_timeout_ms=3_000) as producer:
        until(lambda: is_delivered(producer, b"by bob"), "bob is let in")
        admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob")])
        refused = until_refused(lambda: producer.send("orders", b"late", partition=0).result(LIMIT_S))
    assert isinstance(refused, SaslAuthenticationFailedError), refused


def test_a_consumer_goes_on_after_restarts_and_is_out_when_its_user_is_revoked(
    cluster: LocalCluster, admin: Admin
) -> None:
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion("erin", "a password of erin's")])
    orders = ResourcePattern(ResourceType.TOPIC, "orders")
    group = ResourcePattern(ResourceType.GROUP, "of-erin")
    read = [ACL("User:erin", ACLOperation.READ, ACLPermissionType.ALLOW, each) for each in (orders, group)]
    admin.create_acls(read)
    all_have_heard(admin)
    options = signed_in(cluster, "erin", "a password of erin's")
    with Producer(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls) as producer:
        producer.send("orders", b"before", partition=0).result(LIMIT_S)
    with Consumer(**options, group_id="of-erin", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["orders"])
        assert next(iter(consumer)).topic == "orders"
        for node in cluster.node_ids:
            cluster.stop(node)
            cluster.start(node)
        with Producer(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls) as producer:
            written = producer.send("orders", b"after", partition=0).result(LIMIT_S)
        assert any(record.offset == written.offset for record in consumer)
        assert admin.revoke(principals=["User:erin"]) == 1
        refused = until_refused(lambda: consumer.poll(timeout_ms=200))
    assert isinstance(refused, SaslAuthenticationFailedError), refused
    assert "was revoked" in refused.message
    admin.restore(principals=["User:erin"])


def test_a_revoked_certificate_is_out_at_once_also_on_a_stream(cluster: LocalCluster, admin: Admin) -> None:
    assert cluster.certificates is not None
    carol = cluster.certificates.add_user("carol")
    properties = str(cluster.certificates.properties)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, **carol, delivery_timeout_ms=3_000) as producer:
        until(lambda: is_delivered(producer, b"by carol"), "carol is let in")
        servers = ("--bootstrap-servers", cluster.bootstrap_servers)
        revoked = cli("--command-config", properties, "certs", "revoke", carol["ssl_certificate_location"], *servers)
        assert revoked.returncode == 0, revoked.stderr
        refused = until_refused(lambda: producer.send("orders", b"late", partition=0).result(LIMIT_S))
    assert isinstance(refused, SaslAuthenticationFailedError), refused
    assert "was revoked" in refused.message
    (listed,) = admin.describe_revocations()
    assert admin.restore(serials=[listed.serial or ""]) == 1
    with Producer(bootstrap_servers=cluster.bootstrap_servers, **carol) as producer:
        producer.send("orders", b"by carol again", partition=0).result(LIMIT_S)


class Thief:
    """Authenticates at one node, and uses the token at any node."""

    def __init__(self, options: dict[str, str]) -> None:
        self.places = options["bootstrap_servers"].split(",")
        self._ca = Path(options["ssl_ca_location"]).read_bytes()
        security = ClientSecurity(**{name: value for name, value in options.items() if name != "bootstrap_servers"})
        identity = security.identity()
        assert identity is not None
        with self._channel(self.places[0]) as channel:
            self.token = BlockingSession(channel, identity, self.places[0])._current()
        STOLEN.append(self.token)

    def _channel(self, place: str) -> grpc.Channel:
        return grpc.secure_channel(place, grpc.ssl_channel_credentials(self._ca))

    def ask(self, place: str) -> grpc.StatusCode:
        """Returns the result of a call in the stolen session."""
        with self._channel(place) as channel:
            stub = data_plane_pb2_grpc.DataPlaneStub(channel)
            try:
                stub.Metadata(
                    data_plane_pb2.MetadataRequest(),
                    timeout=LIMIT_S,
                    metadata=(("authorization", f"Session {self.token}"),),
                )
            except grpc.RpcError as refused:
                return refused.code()  # type: ignore[attr-defined,no-any-return]
        return grpc.StatusCode.OK


def test_a_stolen_token_is_good_at_one_node_and_not_after_its_user_or_a_restart(
    cluster: LocalCluster, admin: Admin
) -> None:
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion("victim", "a password of victim's")])
    all_have_heard(admin)
    thief = Thief(signed_in(cluster, "victim", "a password of victim's"))
    home, *others = thief.places
    assert thief.ask(home) is grpc.StatusCode.OK
    assert {thief.ask(other) for other in others} == {grpc.StatusCode.UNAUTHENTICATED}
    assert thief.ask(cluster.address(1)) is grpc.StatusCode.UNAVAILABLE, "where certificates are asked for"
    admin.alter_user_scram_credentials([UserScramCredentialDeletion("victim")])
    deadline = time.monotonic() + LIMIT_S
    while thief.ask(home) is grpc.StatusCode.OK:
        assert time.monotonic() < deadline
    assert thief.ask(home) is grpc.StatusCode.UNAUTHENTICATED
    alices = Thief(signed_in(cluster))
    assert alices.ask(home) is grpc.StatusCode.OK
    cluster.stop(1)
    cluster.start(1)
    assert alices.ask(home) is grpc.StatusCode.UNAUTHENTICATED


def test_no_name_of_a_user_a_group_or_a_producer_is_a_path(cluster: LocalCluster, admin: Admin) -> None:
    there = DATA[0].parent
    before = {file.relative_to(there) for file in there.rglob("*") if file.name != "LOCK"}
    escape = "../../../../escaped"
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id=escape, **cluster.client_tls) as consumer:
        consumer.assign([ORDERS])
        consumer.commit({ORDERS: OffsetAndMetadata(0, escape)})
    with Producer(
        bootstrap_servers=cluster.bootstrap_servers, producer_name="../escaped", **cluster.client_tls
    ) as producer:
        producer.send("orders", b"x", key=escape.encode(), headers=[(escape, b"x")]).result(LIMIT_S)
    admin.create_acls([ACL(f"User:{escape}", ACLOperation.READ, ACLPermissionType.ALLOW, ORDERS_PATTERN)])
    for name in (escape, "..", ".", "orders\n", "a/b", "a\0b", "x" * 250):
        with pytest.raises(QuorumlogError):
            admin.create_topics([NewTopic(name, 1, 3)])
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion(escape, CANARY)])
    after = {file.relative_to(there) for file in there.rglob("*") if file.name != "LOCK"}
    assert not [file for file in after - before if "escaped" in file.name], after - before
    assert {part for file in after - before for part in file.parts} & {"escaped", "a", "b"} == set()


def test_the_command_line_makes_users_and_signs_in(cluster: LocalCluster, tmp_path: Path) -> None:
    assert cluster.certificates is not None
    secret = tmp_path / "dave.password"
    secret.write_text(f"{CANARY}-of-dave\n")
    secret.chmod(0o600)
    by_certificate = ("--command-config", str(cluster.certificates.properties))
    servers = ("--bootstrap-servers", cluster.bootstrap_servers)
    made = cli(*by_certificate, "users", "create", "dave", "--password-file", str(secret), *servers)
    assert (made.returncode, made.stdout) == (0, "Created user dave.\n"), made.stderr
    listed = cli(*by_certificate, "users", "list", *servers)
    assert "dave" in listed.stdout
    assert "SCRAM-SHA-256" in listed.stdout
    options = signed_in(cluster)
    properties = tmp_path / "dave.properties"
    properties.write_text(
        f"security.protocol=SASL_SSL\nssl.ca.location={options['ssl_ca_location']}\nsasl.mechanism=SCRAM-SHA-256\n"
        f"sasl.username=dave\nsasl.password={CANARY}-of-dave\n"
    )
    by_password = ("--command-config", str(properties))
    topics = cli(*by_password, "topics", "list", "--bootstrap-servers", options["bootstrap_servers"])
    assert (topics.returncode, topics.stdout.split()) == (0, ["orders"]), topics.stderr
    properties.write_text(properties.read_text().replace("-of-dave", "-of-nobody"))
    wrong = cli(*by_password, "topics", "list", "--bootstrap-servers", options["bootstrap_servers"])
    assert wrong.returncode == 1
    assert "password is wrong" in wrong.stderr
    assert CANARY not in made.stdout + listed.stdout + topics.stderr + wrong.stderr


def test_a_token_signs_in_and_goes_on_across_its_renewal_and_that_of_the_keys(
    cluster: LocalCluster, audit_log: Path, key_file: Path, tmp_path: Path
) -> None:
    agent = tmp_path / "token"

    def renew(kid: str, lifetime_s: float) -> str:
        bearer = token(claims("dora", now_s=time.time(), lifetime_s=lifetime_s), kid)
        STOLEN.append(bearer)
        agent.with_suffix(".new").write_text(f"{bearer}\n")
        agent.with_suffix(".new").rename(agent)
        return bearer

    options: dict[str, Any] = {
        name: option for name, option in signed_in(cluster).items() if not name.startswith("sasl_plain")
    } | {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_file": str(agent)}
    former = renew("first", 10)
    ends_s = time.monotonic() + 10
    with Producer(**options) as producer:
        offset = producer.send("orders", b"by dora", partition=0).result(LIMIT_S).offset
        write_keys(key_file, "first", "second")
        renew("second", 600)
        while time.monotonic() < ends_s + 1:
            producer.send("orders", b"still by dora", partition=0).result(LIMIT_S)
    write_keys(key_file, "second")
    del options["sasl_oauthbearer_token_file"]
    with Consumer(**options, sasl_oauth_token_provider=agent.read_text().strip) as consumer:
        consumer.assign([ORDERS])
        consumer.seek(ORDERS, offset)
        assert next(iter(consumer)).value == b"by dora"
    for wrong, words in ((former, "has ended|not in the file"), (renew("first", 600), "not in the file")):

        def list_topics(wrong: str = wrong) -> None:
            # A new client each time: a node checks the file once a second, and a session outlives its key.
            with Admin(**options, sasl_oauth_token_provider=lambda: wrong) as stranger:
                stranger.list_topics()

        refused = until_refused(list_topics)
        assert isinstance(refused, SaslAuthenticationFailedError), refused
        assert re.search(words, refused.message)
    # A thread of the node writes it, the next one of the same address a second later.
    until(lambda: "it is signed with a key that is not in the file" in audit_log.read_text(), "the audit log has it")
    renew("second", 600)
    properties = tmp_path / "dora.properties"
    properties.write_text(
        f"security.protocol=SASL_SSL\nssl.ca.location={options['ssl_ca_location']}\nsasl.mechanism=OAUTHBEARER\n"
        f"sasl.oauthbearer.token.file={agent}\n"
    )
    topics = cli("--command-config", str(properties), "topics", "list", "-b", options["bootstrap_servers"])
    assert (topics.returncode, topics.stdout.split()) == (0, ["orders"]), topics.stderr
    nodes = Nodes(Servers(options["bootstrap_servers"], ClientSecurity.of_properties(_properties_in(properties))))
    assert nodes.topic_names(newest=False) == ["orders"], "tasks of Spark also authenticate"
    agent.unlink()
    missing = cli("--command-config", str(properties), "topics", "list", "-b", options["bootstrap_servers"])
    assert (missing.returncode, len(missing.stderr.splitlines())) == (2, 1)
    assert f"sasl_oauthbearer_token_file: cannot read {agent}" in missing.stderr


def _properties_in(file: Path) -> dict[str, str]:
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


def test_secrets_are_nowhere(cluster: LocalCluster, audit_log: Path) -> None:
    options = signed_in(cluster)
    code = (
        "import sys, time; from quorumlog.sdk import Admin; options = eval(sys.stdin.readline());"
        " admin = Admin(**options); admin.list_topics(); print(admin, admin._core.config, flush=True); sys.stdin.read()"
    )
    with ChildProcess(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(f"{options!r}\n")
        client.stdin.flush()
        shown = client.stdout.readline()
        assert "quorumlog" in shown
        running = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        lines = [_read(entry / "cmdline") + _read(entry / "environ") for entry in running if _is_ours(entry)]
        client.stdin.close()
        shown += client.stdout.read()
    assert CANARY not in shown
    assert not any(CANARY.encode() in line for line in lines)
    reported = [log for log in DATA[0].rglob("*.log") if log.is_file()]
    assert reported, "nodes write logs"
    assert cluster.certificates is not None
    keys = [line for key in cluster.certificates.folder.glob("*.key") for line in key.read_text().splitlines()[1:-1]]
    assert STOLEN
    assert keys
    secrets = [each.encode() for each in (CANARY, *STOLEN, *keys, "Session ")]
    with urllib.request.urlopen(f"http://{METRICS[0]}/metrics", timeout=LIMIT_S) as page:
        metrics: bytes = page.read()
    assert b"quorumlog_" in metrics
    for where, content in (*((file, file.read_bytes()) for file in (*reported, audit_log)), ("metrics", metrics)):
        assert [secret for secret in secrets if secret in content] == [], where
    assert not any(token in shown for token in STOLEN)
    assert not any(token.encode() in line for line in lines for token in STOLEN)
    assert b"sign_in_failed" in audit_log.read_bytes()
    for database in DATA[0].rglob("data.mdb"):
        assert CANARY.encode() not in database.read_bytes(), "nodes do not even keep it"


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _is_ours(entry: Path) -> bool:
    try:
        return entry.stat().st_uid == os.getuid()
    except OSError:
        return False


def test_the_rules_hold_for_signed_in_users_too(cluster: LocalCluster) -> None:
    with Admin(**signed_in(cluster)) as alices, pytest.raises(QuorumlogError) as refused:
        alices.describe_user_scram_credentials()
    assert "Describe on Cluster" in refused.value.message
    assert not isinstance(refused.value, TopicAuthorizationFailedError)
