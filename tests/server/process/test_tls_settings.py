"""TLS settings: incomplete combinations are reported in one line, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from free_ports import free_base_port

from quorumlog.server.config.listening import ListenError, check_listening
from quorumlog.server.config.options import Endpoint
from quorumlog.server.config.settings import Settings, SettingsError, load
from quorumlog.server.step.request_context import Listener

PLAIN = {"node_id": 1, "listen": "127.0.0.1:19092", "data_dir": "d", "controllers": "1@127.0.0.1:19093"}
TLS = {
    **PLAIN,
    "peer_listen": "127.0.0.1:19093",
    "tls_certificate": "n.crt",
    "tls_key": "n.key",
    "node_ca": "nodes.crt",
    "client_ca": "clients.crt",
}
#: Ports that no cluster on default ports has.
_PORT = free_base_port(2)
FREE = {
    "listen": f"127.0.0.1:{_PORT}",
    "peer_listen": f"127.0.0.1:{_PORT + 1}",
    "controllers": f"1@127.0.0.1:{_PORT + 1}",
}


def loaded(**more: object) -> Settings:
    return load({**TLS, **more})


def test_a_node_with_certificates_has_a_listener_for_nodes_and_one_for_clients() -> None:
    settings = loaded()
    options = settings.node_options()
    assert options.address == "127.0.0.1:19093"
    assert options.peer_listener is Listener.PEER
    assert set(options.endpoints) == {
        Endpoint(Listener.PEER, "127.0.0.1", 19093),
        Endpoint(Listener.CLIENT, "127.0.0.1", 19092),
    }
    assert settings.pair_files(Listener.PEER).authorities == Path("nodes.crt")
    assert settings.pair_files(Listener.CLIENT).authorities == Path("clients.crt")


def test_where_a_node_listens_everywhere_all_its_listeners_are_at_the_host_that_is_advertised() -> None:
    settings = loaded(
        listen="0.0.0.0:19092",
        peer_listen="0.0.0.0:19093",
        advertise="[2001:db8::1]:443",
        controllers="1@[2001:db8::1]:19093",
    )
    assert set(settings.node_options().endpoints) == {
        Endpoint(Listener.CLIENT, "[2001:db8::1]", 443),
        Endpoint(Listener.PEER, "[2001:db8::1]", 19093),
    }


@pytest.mark.parametrize(
    ("more", "words"),
    [
        *(({name: None}, f"{name} is not set beside tls_certificate") for name in ("tls_key", "node_ca", "client_ca")),
        ({"tls_certificate": None}, "tls_key is set without tls_certificate"),
        ({"peer_listen": None}, "peer_listen is not set"),
        ({"security_inter_broker_protocol": "PLAINTEXT"}, "give plaintext_listen for PLAINTEXT"),
        ({"security_inter_broker_protocol": "TLS"}, "PLAINTEXT or SSL"),
        ({"controllers": "1@127.0.0.1:19092"}, "the same port in controllers"),
        ({"kafka_security_protocol": "SSL"}, "kafka_security_protocol is set without kafka_listen"),
        ({"kafka_listen": "127.0.0.1:9092", "kafka_security_protocol": "SASL_PLAINTEXT"}, "SSL .* or SASL_SSL"),
    ],
)
def test_what_does_not_go_together_is_refused(more: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError, match=words) as refused:
        loaded(**more).node_options()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["peer_listen", "password_listen", "plaintext_listen"])
def test_other_listeners_come_with_a_certificate(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} is set without tls_certificate"):
        load({**PLAIN, "controllers": "1@127.0.0.1:19092", name: "127.0.0.1:19094"}).node_options()


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_kafkas_clients_prove_who_they_are_over_tls_only(protocol: str) -> None:
    more = {"controllers": "1@127.0.0.1:19092", "kafka_listen": "127.0.0.1:9092", "kafka_security_protocol": protocol}
    with pytest.raises(SettingsError, match=f"kafka_security_protocol is {protocol} without tls_certificate"):
        load({**PLAIN, **more}).node_options()


def test_kafkas_clients_prove_who_they_are_as_other_clients_do_unless_it_is_said() -> None:
    own = {**FREE, "kafka_listen": "192.0.2.7:9092"}
    assert load({**PLAIN, "kafka_listen": own["kafka_listen"]}).kafka_proof is None
    assert loaded(**own).kafka_proof is Listener.CLIENT
    assert loaded(**own, password_listen="127.0.0.1:19094").kafka_proof is Listener.PASSWORD
    assert loaded(**own, kafka_security_protocol="SASL_SSL").kafka_proof is Listener.PASSWORD
    with pytest.raises(ListenError, match=r"192\.0\.2\.7 is not an address of this machine"):
        check_listening(loaded(**own))
    with pytest.raises(ListenError, match=r"kafka_listen = 192\.0\.2\.7:9092 is beyond loopback"):
        check_listening(loaded(**own, kafka_security_protocol="PLAINTEXT"))


def test_listeners_that_ask_who_one_is_may_be_beyond_loopback_and_others_only_if_it_is_said_aloud() -> None:
    everywhere = {"listen": "0.0.0.0:0", "peer_listen": "0.0.0.0:0"}
    with pytest.raises(SettingsError):
        loaded(**everywhere)  # No such port; below, none is bound before the refusal.
    with pytest.raises(ListenError, match=r"plaintext_listen = 192\.0\.2\.7:19094 is beyond loopback"):
        check_listening(loaded(**FREE, plaintext_listen="192.0.2.7:19094"))
    for name in ("listen", "password_listen"):
        with pytest.raises(ListenError, match=f"{name} = 192.0.2.7:19092: 192.0.2.7 is not an address of this machine"):
            check_listening(loaded(**{**FREE, name: "192.0.2.7:19092"}))
