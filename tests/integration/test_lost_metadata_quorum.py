"""Two of three controllers are gone: authenticated clients continue, and others authenticate.

For longer than a few seconds: ``OUTAGE_S=60 pytest tests/integration/test_lost_metadata_quorum.py``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from client_loads import FAILOVER_S, Load, read, written

from quorumlog.local import LocalCluster
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    Admin,
    NewTopic,
    Producer,
    ResourcePattern,
    ResourceType,
    UserScramCredentialUpsertion,
)
from quorumlog.sdk.errors import QuorumlogError

# It measures how long nothing was acknowledged.
pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(400)]

OUTAGE_S = float(os.environ.get("OUTAGE_S", "4"))
#: Clients renew their session after two thirds of this.
SESSION_MS = 3_000
PASSWORD = "a password of bob's"


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    reserved = ReservedPorts(4)
    places = {node: {"password_listen": f"127.0.0.1:{port}"} for node, port in enumerate(reserved.ports, start=1)}
    asking = {"authorization": True, "super_users": "User:admin", "connections_max_reauth_ms": SESSION_MS}
    with LocalCluster(nodes=4, controllers=3, tls=True, settings=asking, node_settings=places) as running:
        running.password_servers = ",".join(each["password_listen"] for each in places.values())  # type: ignore[attr-defined]
        with Admin(bootstrap_servers=running.bootstrap_servers, **running.client_tls) as admin:
            topic = ResourcePattern(ResourceType.TOPIC, "orders")
            admin.create_acls(
                ACL(f"User:{user}", operation, ACLPermissionType.ALLOW, topic)
                for user in ("alice", "bob")
                for operation in (ACLOperation.READ, ACLOperation.WRITE)
            )
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", PASSWORD)])
            # Last: once all nodes serve it, they also have users and rules.
            orders = NewTopic("orders", replica_assignments={0: [4, 1, 2], 1: [4, 1, 3]})
            admin.create_topics([orders])
        yield running
    reserved.close()


def test_signed_in_clients_go_on_without_the_metadata_quorum(cluster: LocalCluster) -> None:
    assert cluster.certificates is not None
    alice = {"bootstrap_servers": cluster.bootstrap_servers, **cluster.certificates.add_user("alice")}
    bob = {
        "bootstrap_servers": cluster.password_servers,  # type: ignore[attr-defined]
        "security_protocol": "SASL_SSL",
        "ssl_ca_location": cluster.client_tls["ssl_ca_location"],
        "sasl_plain_username": "bob",
        "sasl_plain_password": PASSWORD,
    }
    loads = [
        Load("alice writes", written(alice, 0)),
        Load("alice reads", read(alice, 0)),
        Load("bob writes", written(bob, 1)),
        Load("bob reads", read(bob, 1)),
    ]
    for load in loads:
        load.wait_for(20)
    for controller in (2, 3):
        cluster.kill(controller)
    ended = time.monotonic() + OUTAGE_S
    with Admin(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=1_500, **cluster.client_tls) as admin:
        with pytest.raises(QuorumlogError):
            admin.create_topics([NewTopic("late", 1, 1)])
        while time.monotonic() < ended:
            for load in loads:
                load.wait_for(10)
        # New clients are also let in. (A producer's identity may be the controller's to give: it does without.)
        for options, partition in ((alice, 0), (bob, 1)):
            with Producer(**options, enable_idempotence=False) as late:  # type: ignore[arg-type]
                assert late.send("orders", b"late", partition=partition).result(30).offset > 0
        for controller in (2, 3):
            cluster.start(controller)
        cluster.wait_ready()
        for load in loads:
            load.wait_for(10)
    with Admin(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls) as patient:
        patient.create_topics([NewTopic("after", 1, 1)])
    for load in loads:
        load.end()
    gaps = {load.name: round(load.longest_s, 2) for load in loads}
    print(f"longest gaps, in seconds: {gaps}")
    assert max(gaps.values()) < FAILOVER_S, gaps
