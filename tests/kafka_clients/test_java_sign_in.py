"""Java's clients and tools authenticate by SCRAM-SHA-512 and by token, write and read, and are refused otherwise."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from audit_log import audit_lines
from command_line import until
from conftest import AGAINST
from token_issuer import AUDIENCE, ISSUER, claims, token, write_keys

from bench.peers.artifacts import JarSet
from bench.peers.kafka import JARS
from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic, UserScramCredentialUpsertion
from quorumlog.sdk.spark.java import find_java_home

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.timeout(900),
    pytest.mark.skipif(AGAINST == "apache", reason="what is shown is quorumlog's"),
]

TOOLS_JARS = JarSet("kafka-tools", "org.apache.kafka", "kafka-tools", "4.3.1")
PRODUCER, CONSUMER = "org.apache.kafka.tools.ConsoleProducer", "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONFIGS = "kafka.admin.ConfigCommand"
PASSWORD = "canary-9b2e-of-alice"
#: What is written and read again, each in a topic of its own.
EXCHANGED = ("SCRAM-SHA-256", "SCRAM-SHA-512", "token", "bob-512", "bob-256")
_PATIENCE_S = 60.0
_OAUTH = "org.apache.kafka.common.security.oauthbearer"

Tool = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.jsonl"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, audit_log: Path) -> Iterator[LocalCluster]:
    for jars in (JARS, TOOLS_JARS):
        if jars.missing():
            jars.download()
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    write_keys(keys, "first")
    settings = {
        "kafka_security_protocol": "SASL_SSL",
        "audit_log": audit_log,
        "sasl_oauthbearer_jwks_file": keys,
        "sasl_oauthbearer_expected_issuer": ISSUER,
        "sasl_oauthbearer_expected_audience": AUDIENCE,
    }
    with LocalCluster(nodes=1, tls=True, kafka=True, settings=settings) as running:
        with Admin(bootstrap_servers=running.bootstrap_servers, **running.client_tls) as admin:
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", PASSWORD)])
            admin.create_topics([NewTopic(name, 1, 1) for name in ("orders", *EXCHANGED)])
        yield running
        logs = running.log_path(1).read_text() + audit_log.read_text()
        assert "fault=failed" not in logs and PASSWORD not in logs and "eyJ" not in logs, "no secret is logged"


@pytest.fixture
def tool(cluster: LocalCluster, tmp_path: Path) -> Tool:
    """Runs a tool with properties of a client, and what it reads from its standard input."""

    def run(kind: str, properties: list[str], *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        assert cluster.certificates is not None
        file = tmp_path / "client.properties"
        trusted = ["ssl.truststore.type=PEM", f"ssl.truststore.location={cluster.certificates.node_ca}"]
        file.write_text("\n".join(["security.protocol=SASL_SSL", *trusted, *properties]))
        # What Java may read tokens from has to be said on its command line.
        allowed, name = tmp_path / "token", "org.apache.kafka.sasl.oauthbearer.allowed"
        java = [
            "-Xmx256m",
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            f"-D{name}.urls=file://{allowed}",
            f"-D{name}.files={allowed}",
            "-cp",
            f"{TOOLS_JARS.folder}/*:{JARS.folder}/*",
            kind,
            "--bootstrap-server",
            cluster.kafka_bootstrap_servers,
            "--command-config",
            str(file),
        ]
        command = [str(Path(find_java_home()) / "bin" / "java"), *java, *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)

    return run


def by_password(mechanism: str, password: str = PASSWORD, user: str = "alice") -> list[str]:
    login = "org.apache.kafka.common.security.scram.ScramLoginModule"
    options = f'username="{user}" password="{password}"'
    return [f"sasl.mechanism={mechanism}", f"sasl.jaas.config={login} required {options};"]


def by_token(folder: Path, bearer: str) -> list[str]:
    file = folder / "token"
    file.write_text(bearer)
    return [
        "sasl.mechanism=OAUTHBEARER",
        f"sasl.jaas.config={_OAUTH}.OAuthBearerLoginModule required;",
        f"sasl.login.callback.handler.class={_OAUTH}.OAuthBearerLoginCallbackHandler",
        f"sasl.oauthbearer.jwt.retriever.class={_OAUTH}.FileJwtRetriever",
        f"sasl.oauthbearer.token.endpoint.url=file://{file}",
    ]


def exchange(tool: Tool, properties: list[str], value: str) -> None:
    """Writes a record and reads it again."""
    written = tool(PRODUCER, properties, "--topic", value, "--sync", text=f"{value}\n")
    assert written.returncode == 0 and "ERROR" not in written.stdout + written.stderr, written.stderr
    wanted = ("--topic", value, "--from-beginning", "--max-messages", "1", "--timeout-ms", "50000")
    read = tool(CONSUMER, properties, *wanted, "--group", "readers-" + value)
    assert read.stdout.splitlines() == [value], read.stderr


def audited(audit_log: Path, event: str, *texts: str) -> None:
    """Waits for a line of the audit log."""

    def is_there() -> bool:
        lines = (json.dumps(line) for line in audit_lines(audit_log) if line["event"] == event)
        return any(all(text in line for text in texts) for line in lines)

    until(is_there, f"{event} {texts} is in the audit log")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_java_authenticates_by_password(tool: Tool, audit_log: Path, mechanism: str) -> None:
    """Java's producer and consumer with each mechanism; with a wrong password the error says why."""
    exchange(tool, by_password(mechanism), mechanism)
    audited(audit_log, "signed_in", "User:alice", mechanism)
    refused = tool(PRODUCER, by_password(mechanism, "wrong"), "--topic", "orders", "--sync", text="x\n")
    said = f"the user name or the password is wrong, or the user has no password for {mechanism}"
    assert said in refused.stdout + refused.stderr
    audited(audit_log, "sign_in_failed", "alice", mechanism)


def test_java_authenticates_by_token(tool: Tool, audit_log: Path, tmp_path: Path) -> None:
    """Java's producer and consumer with a token from a file; with one for another service the error says why."""
    exchange(tool, by_token(tmp_path, token(claims("dora", now_s=time.time()))), "token")
    audited(audit_log, "signed_in", "User:dora", "OAUTHBEARER")
    wrong = by_token(tmp_path, token(claims("mallory", now_s=time.time(), aud="others")))
    refused = tool(PRODUCER, wrong, "--topic", "orders", "--sync", text="x\n")
    assert "the token is not taken: it is for another audience (aud)" in refused.stdout + refused.stderr
    audited(audit_log, "sign_in_failed", "mallory", "OAUTHBEARER", "it is for another audience (aud)")


def test_kafka_configs_sets_both_mechanisms(tool: Tool) -> None:
    """``kafka-configs.sh`` sets, shows and deletes the password for each mechanism."""
    bob = ("--entity-type", "users", "--entity-name", "bob")
    both = "SCRAM-SHA-256=[password=secret-256],SCRAM-SHA-512=[iterations=8192,password=secret-512]"

    def configs(*arguments: str) -> str:
        ended = tool(CONFIGS, by_password("SCRAM-SHA-512"), *arguments, *bob)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    configs("--alter", "--add-config", both)
    described = configs("--describe")
    assert "SCRAM-SHA-256=iterations=4096" in described and "SCRAM-SHA-512=iterations=8192" in described
    exchange(tool, by_password("SCRAM-SHA-512", "secret-512", "bob"), "bob-512")
    exchange(tool, by_password("SCRAM-SHA-256", "secret-256", "bob"), "bob-256")
    configs("--alter", "--delete-config", "SCRAM-SHA-256")
    described = configs("--describe")
    assert "SCRAM-SHA-256" not in described and "SCRAM-SHA-512=iterations=8192" in described
