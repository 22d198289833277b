"""Checks of listen addresses before anything starts, so that a problem is reported in one line."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Sequence

from quorumlog.server.config.setting_values import parse_address
from quorumlog.server.config.settings import Settings
from quorumlog.server.step.request_context import Listener

#: Listeners that require authentication.
_PROVED = frozenset((Listener.PEER, Listener.CLIENT, Listener.PASSWORD))


class ListenError(Exception):
    """Raised when a node cannot listen on an address. The message is one line that says what to do."""


def check_listening(settings: Settings) -> None:
    """Checks that the node may and can listen on its configured addresses.

    Raises:
        ListenError: an address is beyond loopback without ``insecure``, does not exist on this machine, or is in use.
    """
    for name, (address, listener) in _wanted(settings).items():
        beyond = [ip for ip in _resolve(name, address) if not ip.is_loopback]
        if beyond and listener not in _PROVED and not settings.insecure:
            raise ListenError(
                f"{name} = {address} is beyond loopback and has no authentication: listen on 127.0.0.1,"
                " set up TLS (docs/operate/security.md), or set --insecure if all hosts that reach it may do everything"
            )
        flag = "advertise" if name != "kafka_listen" else "kafka_advertise"
        if not name.startswith("metrics_") and any(ip.is_unspecified for ip in beyond) and not getattr(settings, flag):
            raise ListenError(
                f"{name} = {address} is every address of this machine: set --{flag.replace('_', '-')} to the"
                " address at which other hosts reach it"
            )
        try_to_bind(name, address)


def _wanted(settings: Settings) -> dict[str, tuple[str, Listener]]:
    """Returns the address of each listener, by the name of its setting, and how its callers are authenticated."""
    settings_of = {
        Listener.PLAINTEXT: "plaintext_listen" if settings.has_tls else "listen",
        Listener.PEER: "peer_listen",
        Listener.CLIENT: "listen",
        Listener.PASSWORD: "password_listen",
    }
    wanted = {settings_of[listener]: (address, listener) for listener, address in settings.listeners.items()}
    if settings.kafka_listen is not None:
        wanted["kafka_listen"] = settings.kafka_listen, settings.kafka_proof or Listener.KAFKA
    if settings.peer_socket_listen is not None:
        wanted["peer_socket_listen"] = settings.peer_socket_listen, settings.peer_listener
    if settings.metrics_listen is not None:
        wanted["metrics_listen"] = settings.metrics_listen, Listener.PLAINTEXT
    if settings.metrics_tls_listen is not None:
        wanted["metrics_tls_listen"] = settings.metrics_tls_listen, Listener.CLIENT
    return wanted


def check_apart(workers: Sequence[Settings]) -> None:
    """Checks that no two listeners of a machine's workers have the same port.

    Raises:
        ListenError: two have; names both settings.
    """
    taken: dict[int, list[tuple[str, str]]] = {}
    for worker in workers:
        for name, (address, _) in _wanted(worker).items():
            others = taken.setdefault(parse_address(address)[1], [])
            for other, its in others:
                if _may_clash(_resolve(name, address), _resolve(other, its)):
                    first, second = sorted((name, other))
                    raise ListenError(
                        f"the ports of {first} and {second} overlap: each of the {len(workers)} workers needs its own"
                        f" port of both, counted from the configured one, for example {address}: set them at least"
                        f" {len(workers)} apart"
                    )
            others.append((name, address))


_Ips = list[ipaddress.IPv4Address | ipaddress.IPv6Address]


def _may_clash(some: _Ips, others: _Ips) -> bool:
    return any(ip.is_unspecified for ip in (*some, *others)) or not set(some).isdisjoint(others)


def _resolve(name: str, address: str) -> _Ips:
    host, port = parse_address(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ListenError(f"{name} = {address}: {host} cannot be resolved: {error.strerror or error}") from None
    return [ipaddress.ip_address(str(sockaddr[0])) for _, _, _, _, sockaddr in found]


def try_to_bind(name: str, address: str) -> None:
    """Binds and listens briefly: gRPC's own error says less, and in more lines.

    Raises:
        ListenError: names the setting and the address.
    """
    _, port = parse_address(address)
    ip = _resolve(name, address)[0]
    with socket.socket(socket.AF_INET if ip.version == 4 else socket.AF_INET6, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((str(ip), port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                what = f"port {port} is in use by another process: stop it, or choose another port"
            elif error.errno == errno.EADDRNOTAVAIL:
                what = f"{ip} is not an address of this machine"
            else:
                what = f"cannot listen there: {error.strerror}"
            raise ListenError(f"{name} = {address}: {what}") from None
