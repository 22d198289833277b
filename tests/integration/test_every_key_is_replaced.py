"""Every key of a running cluster is replaced as in docs/operate/security.md: authorities, nodes, users."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from client_loads import FAILOVER_S, Load, read, written
from command_line import until

from quorumlog.local import LocalCluster
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    Admin,
    NewTopic,
    ResourcePattern,
    ResourceType,
    SaslAuthenticationFailedError,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from quorumlog.sdk.errors import NoBrokersAvailableError
from quorumlog.server.certificates.issuing import Issued, create_authority, create_client, create_node
from quorumlog.server.certificates.x509 import serial_number
from quorumlog.v1 import peer_pb2

# It measures how long nothing was acknowledged.
pytestmark = [pytest.mark.cluster, pytest.mark.alone]

SECOND = 1 / 86_400
REVOKED_WITHIN_S = 30
#: How long the certificate is good that ends in the middle of it all.
CAROLS_S = 20
USERS = ("alice", "carol", "bob", "bob-2")


class Operator:
    """Replaces files, as the procedure says: written beside the old ones, and renamed into place."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        assert cluster.certificates is not None
        self._cluster = cluster
        self._made = folder
        self.files = cluster.certificates.folder
        self.node_ca, self.client_ca = (create_authority(folder, name) for name in ("node-ca", "client-ca"))
        #: What there was before.
        self.former = {path.name: path.read_bytes() for path in self.files.iterdir()}

    def replace(self, name: str, content: bytes) -> None:
        fresh = self.files / f"{name}.new"
        fresh.write_bytes(content)
        fresh.chmod(0o600)
        os.replace(fresh, self.files / name)

    def trust(self, *, former: bool) -> None:
        """Every user trusts the next authorities, and the former ones too or not."""
        for authority in (self.node_ca, self.client_ca):
            name = authority.certificate.name
            self.replace(name, (self.former[name] if former else b"") + authority.certificate.read_bytes())

    def renew_nodes(self) -> None:
        for node in self._cluster.node_ids:
            self._renew(create_node(self._made, self.node_ca, node, ["127.0.0.1"]))

    def renew_users(self, *users: str) -> None:
        for user in users:
            self._renew(create_client(self._made, self.client_ca, user))

    def _renew(self, made: Issued) -> None:
        for path in (made.key, made.certificate):
            self.replace(path.name, path.read_bytes())

    def restart(self, node: int) -> None:
        self._cluster.stop(node)
        self._cluster.start(node)
        self._cluster.wait_ready()

    def former_pair(self, name: str) -> Issued:
        """State that a client has kept from before."""
        kept = Issued(self._made / f"former-{name}.crt", self._made / f"former-{name}.key")
        for path, ending in zip(kept, ("crt", "key"), strict=True):
            path.write_bytes(self.former[f"{name}.{ending}"])
            path.chmod(0o600)
        return kept


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    reserved = ReservedPorts(3)
    places = {node: {"password_listen": f"127.0.0.1:{port}"} for node, port in enumerate(reserved.ports, start=1)}
    asking = {"authorization": True, "super_users": "User:admin"}
    with LocalCluster(nodes=3, tls=True, settings=asking, node_settings=places) as running:
        running.password_servers = ",".join(each["password_listen"] for each in places.values())  # type: ignore[attr-defined]
        yield running
    reserved.close()


def by_certificate(cluster: LocalCluster, user: str) -> dict[str, str]:
    assert cluster.certificates is not None
    return {"bootstrap_servers": cluster.bootstrap_servers, **cluster.certificates.of_client(user)}


def by_password(cluster: LocalCluster, user: str) -> dict[str, str]:
    return {
        "bootstrap_servers": cluster.password_servers,  # type: ignore[attr-defined]
        "security_protocol": "SASL_SSL",
        "ssl_ca_location": cluster.client_tls["ssl_ca_location"],
        "sasl_plain_username": user,
        "sasl_plain_password": f"a password of {user}",
    }


def set_up(admin: Admin) -> None:
    orders = ResourcePattern(ResourceType.TOPIC, "orders")
    group = ResourcePattern(ResourceType.GROUP, "readers")
    wanted = ((orders, ACLOperation.READ), (orders, ACLOperation.WRITE), (group, ACLOperation.READ))
    admin.create_acls(
        ACL(f"User:{user}", operation, ACLPermissionType.ALLOW, resource)
        for user in USERS
        for resource, operation in wanted
    )
    admin.alter_user_scram_credentials(
        UserScramCredentialUpsertion(user, f"a password of {user}") for user in ("bob", "bob-2")
    )
    # Last: once all nodes serve it, they also have users and rules.
    admin.create_topics([NewTopic("orders", 3, 3)])


def is_taken_for_node(cluster: LocalCluster, pair: Issued, authority: bytes, node: int) -> bool:
    """True if another node answers a caller that shows a node's certificate."""
    credentials = grpc.ssl_channel_credentials(authority, pair.key.read_bytes(), pair.certificate.read_bytes())
    expected = (("grpc.ssl_target_name_override", "node-1.quorumlog.internal"),)
    with grpc.secure_channel(cluster.peer_address(1), credentials, expected) as channel:
        request = peer_pb2.IdentifyRequest(identity=peer_pb2.NodeIdentity(node_id=node))
        try:
            channel.unary_unary("/quorumlog.v1.Peer/Identify", bytes, bytes)(request.SerializeToString(), timeout=30)
        except grpc.RpcError:
            return False
    return True


def ask_until_refused(thief: Admin) -> None:
    """A node refuses once it has applied what the metadata quorum has agreed upon."""
    deadline = time.monotonic() + REVOKED_WITHIN_S
    while time.monotonic() < deadline:
        thief.list_topics()


@pytest.mark.timeout(300)
def test_every_key_is_replaced_under_load_and_no_client_notices(cluster: LocalCluster, tmp_path: Path) -> None:
    certificates = cluster.certificates
    assert certificates is not None
    operator = Operator(cluster, tmp_path)
    with Admin(**by_certificate(cluster, "admin")) as admin:  # type: ignore[arg-type]
        set_up(admin)
        certificates.add_user("alice")
        for name in ("alice.crt", "alice.key"):
            operator.former[name] = (operator.files / name).read_bytes()
        # One whose certificate ends in the middle of it all, with records under way at any moment.
        client_ca = Issued(operator.files / "client-ca.crt", operator.files / "client-ca.key")
        create_client(operator.files, client_ca, "carol", days=CAROLS_S * SECOND)
        ends_s = time.monotonic() + CAROLS_S
        loads = [
            Load("carol", written(by_certificate(cluster, "carol"), 1, ahead=10)),
            Load("alice", written(by_certificate(cluster, "alice"), 0)),
            Load("bob", written(by_password(cluster, "bob"), 2)),
            Load("alice reads", read(by_certificate(cluster, "alice"))),
            Load("bob reads", read(by_password(cluster, "bob"))),
        ]
        for load in loads[:3]:
            load.wait_for(20)

        # 1. Every user trusts the next authorities beside the former ones.
        operator.trust(former=True)
        # Who never stops continues with the former certificate to its end.
        operator.renew_users("carol")
        # 2. Nodes have their certificates of the next authority. One restarts before the others: both kinds get along.
        operator.renew_nodes()
        operator.restart(2)
        both = (operator.files / "node-ca.crt").read_bytes()
        assert is_taken_for_node(cluster, operator.former_pair("node-3"), both, 3), "it is as good as its next one"
        # Each node looks now and then whether it has another certificate.
        until(
            lambda: not is_taken_for_node(cluster, operator.former_pair("node-3"), operator.former["node-ca.crt"], 3),
            "node 1 shows its next certificate",
        )
        # 3. So do users. What was stolen of before is revoked: those who have the next one continue.
        operator.renew_users("alice", "admin")
        stolen = operator.former_pair("alice")
        serial = serial_number(stolen.certificate.read_bytes())
        admin.revoke(serials=[serial])
        assert serial in {revoked.serial for revoked in admin.describe_revocations()}
        with_stolen = by_certificate(cluster, "alice") | {
            "ssl_certificate_location": str(stolen.certificate),
            "ssl_key_location": str(stolen.key),
        }
        with (
            Admin(**with_stolen) as thief,  # type: ignore[arg-type]
            pytest.raises(SaslAuthenticationFailedError, match="was revoked"),
        ):
            ask_until_refused(thief)
        for load in loads[:3]:
            load.wait_for(20)
        # A user's password: another user, the same rules, and clients that go over to it.
        bobs = [load for load in loads if load.name.startswith("bob")]
        nexts = [
            Load("bob-2", written(by_password(cluster, "bob-2"), 2)),
            Load("bob-2 reads", read(by_password(cluster, "bob-2"))),
        ]
        nexts[0].wait_for(10)
        for load in bobs:
            load.end()
        admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob")])

        # 4. The former authorities are no longer trusted once every node was restarted.
        operator.trust(former=False)
        for node in cluster.node_ids:
            operator.restart(node)
        present = [*(load for load in loads if load not in bobs), *nexts]
        for load in (loads[0], loads[1], nexts[0]):
            load.wait_for(20)
        assert len(admin.describe_cluster().brokers) == 3, "a client from before also continues"

        while time.monotonic() < ends_s + 1:
            loads[0].wait_for(10)
        for load in present:
            load.end()
    gaps = {load.name: round(load.longest_s, 2) for load in (*loads, *nexts) if load.done}
    print(f"longest gaps, in seconds: {gaps}")
    assert len(gaps) == len(loads) + len(nexts), f"some have done nothing: {gaps}"
    assert max(gaps.values()) < FAILOVER_S, gaps
    # Nothing of before lets anybody in.
    trusted = (operator.files / "node-ca.crt").read_bytes()
    assert is_taken_for_node(cluster, Issued(operator.files / "node-3.crt", operator.files / "node-3.key"), trusted, 3)
    assert not is_taken_for_node(cluster, operator.former_pair("node-3"), trusted, 3)
    former = operator.former_pair("admin")
    with (
        pytest.raises(NoBrokersAvailableError),
        Admin(
            **by_certificate(cluster, "admin")
            | {"ssl_certificate_location": str(former.certificate), "ssl_key_location": str(former.key)},  # type: ignore[arg-type]
            bootstrap_timeout_ms=500,
        ) as late,
    ):
        late.list_topics()
