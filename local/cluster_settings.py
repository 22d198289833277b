"""Settings of a local cluster's nodes: which ones a caller may set, and validation of their values."""

from __future__ import annotations

import os
from collections.abc import Mapping

from quorumlog.local.node_process import ClusterSettingsError
from quorumlog.server.config.settings import ENV_PREFIX, Settings, SettingsError, check

_PORTS = "the cluster chooses its ports (--base-port)"
_CERTIFICATES = "a cluster with --tls makes its certificates"
#: Settings that a local cluster chooses itself, with the reason.
DECIDED = {
    "node_id": "nodes are numbered from 1",
    "data_dir": "every node has a folder in the directory of the cluster (--data-dir)",
    "controllers": "the first nodes vote on metadata",
    "workers": "all nodes have the same number (--workers)",
    "listen": _PORTS,
    "peer_listen": _PORTS,
    "kafka_listen": f"{_PORTS}, with --kafka also those for Kafka's clients",
    "advertise": _PORTS,
    "kafka_advertise": _PORTS,
    "tls_certificate": _CERTIFICATES,
    "tls_key": _CERTIFICATES,
    "node_ca": _CERTIFICATES,
    "client_ca": _CERTIFICATES,
}
#: Addresses that two nodes of one machine cannot share.
_OWN_ADDRESSES = ("peer_socket_listen", "password_listen", "plaintext_listen", "metrics_listen", "metrics_tls_listen")
#: Placeholders for what the cluster chooses.
_PLACE = "127.0.0.1:1"
_ANY_NODE = {"node_id": "1", "data_dir": "node-1", "controllers": f"1@{_PLACE}"}
_TLS = dict.fromkeys(("tls_certificate", "tls_key", "node_ca", "client_ca"), "file")


def check_settings(
    settings: Mapping[str, str],
    node_settings: Mapping[int, Mapping[str, object]],
    *,
    nodes: int,
    tls: bool,
    kafka: bool,
) -> None:
    """Checks the settings of a local cluster before anything is started.

    Arguments:
        settings: of every node, by name.
        node_settings: node id -> settings that only this node has.

    Raises:
        ClusterSettingsError: an unknown name, an invalid value, or a setting that the cluster chooses itself.
    """
    for name in settings:
        if name in _OWN_ADDRESSES and nodes > 1:
            raise ClusterSettingsError(
                f"{name} cannot be set for all {nodes} nodes: they cannot share an address (in Python,"
                " node_settings={1: {...}} sets one for each)"
            )
    decided = _ANY_NODE | {"peer_listen" if tls else "listen": _PLACE, "listen": "127.0.0.1:2" if tls else _PLACE}
    if tls:
        decided |= _TLS
    if kafka:
        decided["kafka_listen"] = _PLACE
    for own in (node_settings.get(node, {}) for node in range(1, nodes + 1)):
        chosen = {**settings, **{name: str(value) for name, value in own.items()}}
        for name in chosen.keys() & DECIDED.keys():
            raise ClusterSettingsError(f"{name} cannot be set for a local cluster: {DECIDED[name]}")
        try:
            check({**decided, **chosen}, "of the local cluster")
        except SettingsError as error:
            raise ClusterSettingsError(str(error)) from None


def unused_variables() -> list[str]:
    """Returns a line for each environment variable that has no effect although it would configure a node.

    A local cluster does not pass these on to its nodes, because they are intended for another node.
    """
    lines = []
    for name in Settings.model_fields:
        variable = ENV_PREFIX + name.upper()
        value = os.environ.get(variable)
        if not value:
            continue
        advice = DECIDED.get(name, f"use --set {name}={value}, or settings={{{name!r}: {value!r}}} in Python")
        lines.append(f"{variable} has no effect on a local cluster: {advice}")
    return lines
