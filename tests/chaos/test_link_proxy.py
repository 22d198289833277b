"""Proxies in front of nodes: whose connection it is, and that a cut link is silent and loses nothing."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager

import pytest
from child_process import ChildProcess

from quorumlog.chaos.processes import link_proxy
from quorumlog.chaos.processes.link_proxy import HOST, LinkProxies, owners_of

#: Long enough for bytes that get through; what must not get through is looked for in as long.
PROMPT_S = 0.3
PATIENT_S = 30.0


@contextmanager
def echo() -> Iterator[str]:
    """A server that sends back what it gets, in upper case."""
    with socket.create_server((HOST, 0)) as server:

        def serve(connection: socket.socket) -> None:
            with closing(connection):
                while data := connection.recv(1024):
                    connection.sendall(data.upper())

        def accept() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"{HOST}:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


@contextmanager
def connected(address: str) -> Iterator[socket.socket]:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENT_S) as connection:
        yield connection


@pytest.fixture
def proxies() -> Iterator[LinkProxies]:
    """Two nodes: 1 is this process, 2 an echo that opens no connections."""
    with echo() as target, LinkProxies((1, 2)) as running:
        running.lead_to({1: target, 2: target}, lambda node: os.getpid() if node == 1 else None)
        yield running


@pytest.mark.parametrize("isolated", [1, 2])
def test_a_cut_link_carries_nothing_and_what_was_sent_arrives_afterwards(proxies: LinkProxies, isolated: int) -> None:
    with connected(proxies.addresses[2]) as link:
        link.sendall(b"before")
        assert link.recv(100) == b"BEFORE"
        proxies.isolate(isolated)
        link.sendall(b"during")
        with connected(proxies.addresses[2]) as late:
            late.sendall(b"late")
            for silent in (link, late):
                silent.settimeout(PROMPT_S)
                with pytest.raises(TimeoutError):
                    silent.recv(100)
                silent.settimeout(PATIENT_S)
            proxies.rejoin(isolated)
            assert late.recv(100) == b"LATE"
        assert link.recv(100) == b"DURING"


def test_what_a_deaf_node_opened_itself_carries_on(proxies: LinkProxies) -> None:
    with connected(proxies.addresses[2]) as own, connected(proxies.addresses[1]) as to_it:
        proxies.deafen(1)
        own.sendall(b"own")
        assert own.recv(100) == b"OWN"
        to_it.sendall(b"hello")
        to_it.settimeout(PROMPT_S)
        with pytest.raises(TimeoutError):
            to_it.recv(100)
        to_it.settimeout(PATIENT_S)
        proxies.rejoin(1)
        assert to_it.recv(100) == b"HELLO"


def test_links_of_others_go_on(proxies: LinkProxies) -> None:
    with echo() as target:
        proxies.lead_to({1: target, 2: target}, lambda node: None)
        with connected(proxies.addresses[1]) as link:
            proxies.isolate(2)
            link.sendall(b"still")
            assert link.recv(100) == b"STILL"


def test_whose_a_connection_is_nobody_asks_until_a_node_is_isolated(proxies: LinkProxies) -> None:
    with echo() as target:
        requests: list[int] = []
        proxies.lead_to({1: target, 2: target}, requests.append)  # type: ignore[arg-type]
        with connected(proxies.addresses[1]) as first, connected(proxies.addresses[2]) as second:
            for link in (first, second):
                link.sendall(b"a")
                assert link.recv(100) == b"A"
            assert requests == []
            proxies.isolate(2)
            # Of both connections at once.
            assert requests == [1, 2]


def test_what_goes_on_is_not_held_up_by_the_question_whose_new_connections_are(
    proxies: LinkProxies, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[int] = []
    answer = threading.Event()

    def slowly(ports: Collection[int], pids: Mapping[int, int | None]) -> dict[int, int]:
        requests.append(len(ports))
        assert len(requests) == 1 or answer.wait(PATIENT_S)
        return {}

    monkeypatch.setattr(link_proxy, "owners_of", slowly)
    with ExitStack() as links, connected(proxies.addresses[1]) as old:
        old.sendall(b"old")
        assert old.recv(100) == b"OLD"
        proxies.isolate(2)
        new = [links.enter_context(connected(proxies.addresses[1])) for _ in range(5)]
        for link in new:
            link.sendall(b"new")
        old.sendall(b"continues")
        assert old.recv(100) == b"CONTINUES"
        answer.set()
        assert [link.recv(100) for link in new] == [b"NEW"] * 5
    # Of the old one, of the new one that existed first, and of all others together.
    assert sum(requests) >= 6
    assert len(requests) <= 3


def test_the_end_of_a_connection_is_passed_on(proxies: LinkProxies) -> None:
    with connected(proxies.addresses[1]) as link:
        link.sendall(b"a")
        assert link.recv(100) == b"A"
        link.shutdown(socket.SHUT_WR)
        assert link.recv(100) == b""


def test_a_node_that_does_not_listen_refuses_through_its_proxy(proxies: LinkProxies) -> None:
    with socket.create_server((HOST, 0)) as closed:
        nowhere = f"{HOST}:{closed.getsockname()[1]}"
    proxies.lead_to({1: nowhere, 2: nowhere}, lambda node: None)
    with connected(proxies.addresses[1]) as link:
        assert link.recv(100) == b""


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6"])
def test_the_process_at_the_other_end_is_found(family: str) -> None:
    address = "127.0.0.1" if family == "AF_INET" else "::ffff:127.0.0.1"
    program = (
        "import socket, sys\n"
        f"with socket.socket(socket.{family}) as link:\n"
        f"    link.connect(({address!r}, int(sys.argv[1])))\n"
        "    sys.stdin.read()\n"
    )
    with socket.create_server((HOST, 0)) as server:
        command = [sys.executable, "-c", program, str(server.getsockname()[1])]
        with ChildProcess(command, stdin=subprocess.PIPE) as child:
            connection, (_, port) = server.accept()
            assert owners_of({port}, {7: os.getpid(), 8: child.pid, 9: None}) == {port: 8}
            assert owners_of({port}, {7: os.getpid()}) == {}
            assert owners_of({port + 1}, {8: child.pid}) == {}
            assert child.stdin is not None
            child.stdin.close()
            connection.close()
