"""Settings of the listener for Kafka clients: its address, the advertised address, and required settings."""

from __future__ import annotations

import pytest

from quorumlog.local.ports import ReservedPorts
from quorumlog.server.config.listening import ListenError, check_listening
from quorumlog.server.config.options import Endpoint
from quorumlog.server.config.settings import Settings, SettingsError, load
from quorumlog.server.step.request_context import Listener

PLAIN = {"node_id": 1, "listen": "127.0.0.1:19092", "data_dir": "d", "controllers": "1@127.0.0.1:19092"}
TLS = {
    "peer_listen": "127.0.0.1:19093",
    "tls_certificate": "n.crt",
    "tls_key": "n.key",
    "node_ca": "nodes.crt",
    "client_ca": "clients.crt",
    "controllers": "1@127.0.0.1:19093",
}


def loaded(**more: object) -> Settings:
    return load({**PLAIN, **more})


def test_a_node_registers_where_kafkas_clients_reach_it() -> None:
    assert loaded().node_options().endpoints == ()
    assert loaded(kafka_listen="127.0.0.1:9092").node_options().endpoints == (
        Endpoint(Listener.KAFKA, "127.0.0.1", 9092),
    )
    advertised = loaded(kafka_listen="127.0.0.1:9092", kafka_advertise="[2001:db8::1]:443")
    assert advertised.node_options().endpoints == (Endpoint(Listener.KAFKA, "2001:db8::1", 443),)
    assert advertised.address == "127.0.0.1:19092", "peers still get the same address"


def test_beside_tls_it_is_one_listener_more() -> None:
    endpoints = loaded(**TLS, kafka_listen="127.0.0.1:9092").node_options().endpoints
    assert {each.listener for each in endpoints} == {Listener.PEER, Listener.CLIENT, Listener.KAFKA}


def test_an_address_to_advertise_needs_a_listener() -> None:
    with pytest.raises(SettingsError, match="kafka_advertise is set without kafka_listen"):
        loaded(kafka_advertise="127.0.0.1:9092").node_options()


def test_it_listens_beyond_loopback_only_where_that_is_wanted_and_others_are_told_where() -> None:
    reserved = ReservedPorts(2)
    one, other = reserved.ports
    try:
        places = {"listen": f"127.0.0.1:{one}", "controllers": f"1@127.0.0.1:{one}"}
        with pytest.raises(ListenError, match=r"kafka_listen = 192\.0\.2\.7:9092 is beyond loopback"):
            check_listening(loaded(**places, kafka_listen="192.0.2.7:9092"))
        everywhere = {**places, "kafka_listen": f"0.0.0.0:{other}", "insecure": True}
        with pytest.raises(ListenError, match="set --kafka-advertise"):
            check_listening(loaded(**everywhere, advertise=f"127.0.0.1:{one}"))
        check_listening(loaded(**everywhere, kafka_advertise="127.0.0.1:9092"))
    finally:
        reserved.close()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"kafka_listen": "nowhere"}, "host:port"),
        ({"kafka_max_connections_per_ip": 0}, "from 1 to 1000000"),
        ({"kafka_auto_create_topics_enable": "perhaps"}, "true to create topics"),
    ],
)
def test_a_wrong_value_is_said_in_one_line(more: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError, match=words) as refused:
        loaded(**more)
    assert "\n" not in str(refused.value)
