"""The cluster under attack, the access to it, and the secrets that no client may learn.

Where clients are authenticated, recognizable secrets are planted: a topic that few may see, the content of its
records, a password, keys, session tokens. One of them in an answer, a log or a command line is a leak.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from quorumlog.chaos.hostile.access import Entrance, credentials_of
from quorumlog.chaos.hostile.caller import HostileCaller
from quorumlog.chaos.hostile.known_ids import STAGE
from quorumlog.local import LocalCluster
from quorumlog.local.ports import ReservedPorts
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
    UserScramCredentialUpsertion,
)
from quorumlog.v1 import admin_pb2, admin_pb2_grpc

NODES = 3
#: Compaction starts soon, so that it reads what hostile clients wrote; files are small, because every run has its own.
#: Names without a topic must be rejected, not become topics.
SETTINGS: dict[str, object] = {
    "compaction_interval_ms": 1_000,
    "storage_map_size_bytes": 16 << 30,
    "kafka_auto_create_topics_enable": False,
}
_USER = "fuzzer"
#: Length of a substring of a key line that is unique.
_KEY_LINE = 40


@dataclass(slots=True)
class StagedCluster:
    """A cluster under attack.

    Arguments:
        entrance: access for hostile clients.
        secrets: texts that nodes must not write anywhere.
        audit_log: audit log of all nodes; None if none exists.
    """

    cluster: LocalCluster
    entrance: Entrance
    secrets: tuple[str, ...] = ()
    audit_log: Path | None = None

    def leaks(self, more: Iterable[str] = ()) -> list[str]:
        """Returns a line for each file and command line that contains a secret.

        Arguments:
            more: further secrets, such as tokens.
        """
        wanted = {each.encode() for each in (*self.secrets, *more)}
        if not wanted:
            return []
        written = [*self.cluster.root.rglob("*.log"), *([self.audit_log] if self.audit_log else [])]
        written += [Path(f"/proc/{self.cluster.pid(node)}/cmdline") for node in self.cluster.node_ids]
        found = []
        for file in written:
            content = file.read_bytes() if file.exists() else b""
            found += [f"{file} contains a secret" for each in wanted if each in content][:1]
        return found


@contextmanager
def staged_cluster(caller: HostileCaller = HostileCaller.ANYBODY, *, kafka: bool = False) -> Iterator[StagedCluster]:
    """Runs a cluster with the prepared topics; it is deleted afterwards."""
    if caller is HostileCaller.ANYBODY:
        with LocalCluster(nodes=NODES, settings=SETTINGS, kafka=kafka) as cluster:
            with grpc.insecure_channel(cluster.address(1)) as channel:
                admin_pb2_grpc.AdminStub(channel).CreateTopics(stage(list(STAGE)), timeout=10)
            at = {node: cluster.address(node) for node in cluster.node_ids}
            yield StagedCluster(cluster, Entrance(at, kafka=_kafka_places(cluster) if kafka else {}))
        return
    with ExitStack() as open_until_the_end:
        reserved = ReservedPorts(NODES)
        open_until_the_end.callback(reserved.close)
        places = {node: f"127.0.0.1:{port}" for node, port in enumerate(reserved.ports, start=1)}
        beside = open_until_the_end.enter_context(tempfile.TemporaryDirectory(prefix="quorumlog-fuzz-audit-"))
        audit_log = Path(beside) / "audit.jsonl"
        asking: dict[str, object] = {"authorization": True, "super_users": "User:admin", "audit_log": audit_log}
        made = LocalCluster(
            nodes=NODES,
            tls=True,
            kafka=kafka,
            settings={**SETTINGS, **asking, "log_level": "debug"},
            node_settings={node: {"password_listen": place} for node, place in places.items()},
        )
        yield _furnished(open_until_the_end.enter_context(made), caller, places, audit_log, kafka=kafka)


def _furnished(
    cluster: LocalCluster, caller: HostileCaller, places: dict[int, str], audit_log: Path, *, kafka: bool
) -> StagedCluster:
    """Creates topics, users, ACLs and secrets."""
    mark = f"canary-{secrets.token_hex(6)}"
    hidden, record, password = f"{mark}-topic", f"{mark}-record", f"{mark}-password"
    servers = cluster.bootstrap_servers
    tls: dict[str, Any] = cluster.client_tls
    certificates = cluster.certificates
    assert certificates is not None
    with Admin(bootstrap_servers=servers, **tls) as admin:
        with grpc.secure_channel(cluster.address(1), credentials_of(tls)) as channel:
            admin_pb2_grpc.AdminStub(channel).CreateTopics(stage(list(STAGE)), timeout=10)
        admin.create_topics([NewTopic(hidden, 1, NODES)])
        admin.create_acls(_few_rights())
        admin.alter_user_scram_credentials([UserScramCredentialUpsertion(_USER, password)])
    with Producer(bootstrap_servers=servers, **tls) as producer:
        producer.send(hidden, record.encode(), key=record.encode()).result(30)
    keys = [line for key in certificates.folder.glob("*.key") for line in key.read_text().splitlines()[1:-1]]
    never = (password, *(line for line in keys if len(line) >= _KEY_LINE))
    match caller:
        case HostileCaller.USER:
            options = certificates.add_user(_USER)
        case HostileCaller.ADMIN:
            options = tls
        case HostileCaller.FOREIGNER:
            options = _of_another_authority(cluster)
        case HostileCaller.STRANGER | HostileCaller.UNSIGNED:
            options = {"security_protocol": "SSL", "ssl_ca_location": tls["ssl_ca_location"]}
        case _:
            options = {
                "security_protocol": "SASL_SSL",
                "ssl_ca_location": tls["ssl_ca_location"],
                "sasl_mechanism": "SCRAM-SHA-256",
                "sasl_plain_username": _USER,
                "sasl_plain_password": password,
            }
    at = places if caller.by_password else {node: cluster.address(node) for node in cluster.node_ids}
    forbidden = never if caller is HostileCaller.ADMIN else (*never, hidden, record)
    entrance = Entrance(at, options, forbidden, _kafka_places(cluster) if kafka else {})
    return StagedCluster(cluster, entrance, (*never, record), audit_log)


def _kafka_places(cluster: LocalCluster) -> dict[int, str]:
    """Returns the addresses for Kafka clients."""
    return dict(zip(cluster.node_ids, cluster.kafka_bootstrap_servers.split(","), strict=True))


def _few_rights() -> list[ACL]:
    def rule(operation: ACLOperation, kind: ResourceType, name: str, pattern: ACLResourcePatternType) -> ACL:
        return ACL(f"User:{_USER}", operation, ACLPermissionType.ALLOW, ResourcePattern(kind, name, pattern))

    literal, prefixed = ACLResourcePatternType.LITERAL, ACLResourcePatternType.PREFIXED
    return [
        rule(ACLOperation.READ, ResourceType.TOPIC, "stage-plain", literal),
        rule(ACLOperation.WRITE, ResourceType.TOPIC, "stage-plain", literal),
        rule(ACLOperation.WRITE, ResourceType.TOPIC, "stage-compacted", literal),
        rule(ACLOperation.DESCRIBE, ResourceType.TOPIC, "stage-single", literal),
        rule(ACLOperation.READ, ResourceType.GROUP, "group-", prefixed),
        rule(ACLOperation.WRITE, ResourceType.PRODUCER_NAME, "producer-", prefixed),
    ]


def _of_another_authority(cluster: LocalCluster) -> dict[str, str]:
    from quorumlog.server.certificates.issuing import create_authority, create_client

    folder = cluster.root / "elsewhere"
    made = create_client(folder, create_authority(folder, "other"), _USER)
    return cluster.client_tls | {
        "ssl_certificate_location": os.fspath(made.certificate),
        "ssl_key_location": os.fspath(made.key),
    }


def stage(names: list[str]) -> admin_pb2.CreateTopicsRequest:
    """Returns the request that creates the prepared topics."""
    configs = {
        "stage-compacted": {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0",
            "delete.retention.ms": "100",
        },
        "stage-stamped": {"message.timestamp.type": "LogAppendTime", "retention.bytes": "1000000"},
    }
    request = admin_pb2.CreateTopicsRequest(timeout_ms=5_000)
    for name in names:
        factor = 1 if name == "stage-single" else 3
        request.topics.add(name=name, num_partitions=2, replication_factor=factor, configs=configs.get(name, {}))
    return request
