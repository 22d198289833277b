"""Where a node listens: checked before anything starts, so that what is wrong is said in one line."""

from __future__ import annotations

import errno
import ipaddress
import socket

from quorumlog.server.settings import Settings, parse_address


class ListenError(Exception):
    """The address cannot be listened on. The message is one line that says what to do."""


def check_listening(settings: Settings) -> None:
    """Checks that the node may and can listen where it is told to.

    Raises:
        ListenError: the address is beyond loopback without ``insecure``, does not exist here, or is taken.
    """
    addresses = _resolve("listen", settings.listen)
    beyond = [host for host, _ in addresses if not ipaddress.ip_address(host.partition("%")[0]).is_loopback]
    if beyond and not settings.insecure:
        raise ListenError(
            f"{settings.listen} is beyond loopback, and there is no TLS and no authentication yet: listen on 127.0.0.1,"
            " or say --insecure if everyone who can reach it may read and write everything"
        )
    if any(ipaddress.ip_address(host.partition("%")[0]).is_unspecified for host in beyond) and not settings.advertise:
        raise ListenError(
            f"{settings.listen} is every address of this machine: give --advertise host:port, where others reach it"
        )
    try_to_bind("listen", settings.listen)
    if settings.metrics_listen is not None:
        try_to_bind("metrics_listen", settings.metrics_listen)


def _resolve(name: str, address: str) -> list[tuple[str, socket.AddressFamily]]:
    host, port = parse_address(address)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise ListenError(f"{name} = {address}: {host} cannot be resolved: {error.strerror or error}") from None
    return [(str(sockaddr[0]), family) for family, _, _, _, sockaddr in found]


def try_to_bind(name: str, address: str) -> None:
    """Listens for a moment: gRPC would say less about what went wrong, and in more lines.

    Raises:
        ListenError: which names the setting and the address.
    """
    _, port = parse_address(address)
    host, family = _resolve(name, address)[0]
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                what = f"port {port} is in use by another process: stop it, or choose another port"
            elif error.errno == errno.EADDRNOTAVAIL:
                what = f"{host} is no address of this machine"
            else:
                what = f"cannot listen there: {error.strerror}"
            raise ListenError(f"{name} = {address}: {what}") from None
