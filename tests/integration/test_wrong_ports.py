"""Clients that are pointed at another port of a node, or that lack TLS, report that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NoBrokersAvailableError
from quorumlog.sdk.runtime.other_protocol import what_answers

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", params=["plain", "tls"])
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    with LocalCluster(nodes=1, kafka=True, tls=request.param == "tls") as running:
        yield running


def problem_with(address: str, **security: str) -> str:
    with (
        pytest.raises(NoBrokersAvailableError) as failed,
        Admin(bootstrap_servers=address, bootstrap_timeout_ms=1_500, **security) as admin,
    ):
        admin.list_topics()
    return failed.value.message


def test_kafka_port_is_recognised(cluster: LocalCluster) -> None:
    """With TLS or without, whatever the client uses. A port that asks for certificates cannot be asked for more."""
    address = cluster.kafka_bootstrap_servers
    words = (
        f"{address} does not speak gRPC" if cluster.client_tls else f"{address} speaks Kafka's protocol: use the gRPC"
    )
    for problem in (
        problem_with(address, **cluster.client_tls),
        *(what_answers(address, tls) for tls in (False, True)),
    ):
        assert (problem or "").startswith(words)
        assert "use the gRPC address" in (problem or "")


def test_missing_tls_is_recognised(cluster: LocalCluster) -> None:
    """A client without TLS at a node with it, and the other way round; a matching node is accepted."""
    address, uses_tls = cluster.address(1), bool(cluster.client_tls)
    assert what_answers(address, uses_tls) is None
    words = "uses TLS: set security_protocol" if uses_tls else "does not use TLS: leave security_protocol out"
    assert words in (what_answers(address, not uses_tls) or "")
    if uses_tls:
        assert words in problem_with(address)


def test_other_addresses_are_left_alone() -> None:
    """Addresses at which nothing listens, and texts that are not an address."""
    for address in ("127.0.0.1:1", "nonsense", "127.0.0.1:x", "[::1]:1"):
        assert what_answers(address, tls=False) is None
