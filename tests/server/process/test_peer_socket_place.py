"""The place at which a node accepts sockets: beside its listener for peers, unless a proxy is in between."""

import pytest

from quorumlog.server.config.settings import load

NODE = {"node_id": 1, "data_dir": "d", "controllers": "1@127.0.0.1:19092"}


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"listen": "127.0.0.1:19092"}, ("127.0.0.1", 0)),
        ({"listen": "0.0.0.0:19092", "advertise": "one.example:19092"}, ("0.0.0.0", 0)),
        ({"listen": "[::]:19092", "advertise": "one.example:19092"}, ("::", 0)),
        # Behind a proxy, or another machine's port.
        ({"listen": "127.0.0.1:19091", "advertise": "127.0.0.1:19092"}, None),
        ({"listen": "127.0.0.1:19092", "advertise": "127.0.0.2:19092"}, None),
        ({"listen": "0.0.0.0:19091", "advertise": "one.example:19092"}, None),
        (
            {"listen": "0.0.0.0:19091", "advertise": "one.example:19092", "peer_socket_listen": "0.0.0.0:19099"},
            ("0.0.0.0", 19099),
        ),
    ],
)
def test_sockets_take_the_way_of_the_streams(settings: dict[str, str], place: tuple[str, int] | None) -> None:
    assert load({**NODE, **settings}).peer_socket_place == place
