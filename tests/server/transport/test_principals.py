"""Principals of connections, by the certificates that they present."""

from __future__ import annotations

import pytest

from quorumlog.server.step.request_context import ANONYMOUS, Listener
from quorumlog.server.transport.principals import listener_of, node_id_of, principal_of

TLS = {"transport_security_type": [b"ssl"]}
CERTIFICATE = {**TLS, "x509_pem_cert": [b"-----BEGIN CERTIFICATE-----"]}


@pytest.mark.parametrize(
    ("uris", "common_names", "principal"),
    [
        ([b"quorumlog:user:alice"], [b"somebody"], "User:alice"),
        ([b"https://example.net/alice"], [b"bert"], "User:bert"),
        ([], [b"CN with spaces"], "User:CN with spaces"),
        ([], [], ANONYMOUS),
        ([], [b"*"], ANONYMOUS),
        ([], [b"a\nb"], ANONYMOUS),
        ([], [b"a", b"b"], ANONYMOUS),
        ([], [b"x" * 250], ANONYMOUS),
        ([b"quorumlog:user:alice", b"quorumlog:user:bert"], [], ANONYMOUS),
        ([b"quorumlog:node:3"], [b"node-3"], ANONYMOUS),
        ([b"quorumlog:node:3", b"quorumlog:user:admin"], [], ANONYMOUS),
        ([b"quorumlog:user:"], [b"bert"], "User:bert"),
    ],
)
def test_a_certificate_names_a_user(uris: list[bytes], common_names: list[bytes], principal: str) -> None:
    assert principal_of({**CERTIFICATE, "peer_uri": uris, "x509_common_name": common_names}) == principal


def test_without_a_certificate_everybody_is_anonymous() -> None:
    assert principal_of({}) == principal_of(TLS) == ANONYMOUS


def test_a_certificate_of_two_nodes_is_of_none() -> None:
    assert node_id_of({**CERTIFICATE, "peer_uri": [b"quorumlog:node:3"]}) == 3
    assert node_id_of({**CERTIFICATE, "peer_uri": [b"quorumlog:node:3", b"quorumlog:node:4"]}) is None
    assert node_id_of({**CERTIFICATE, "x509_common_name": [b"node-3"]}) is None


def test_the_listener_is_known_by_what_it_asks_for() -> None:
    assert listener_of({}) is Listener.PLAINTEXT
    assert listener_of(TLS) is Listener.PASSWORD
    assert listener_of(CERTIFICATE) is Listener.CLIENT
