"""Starts nodes faster: processes that have imported the server already, and fork each node.

Importing is nine tenths of what a node's start costs. A program that starts many nodes, such as a run of tests, uses
``forked_nodes``. This module is also the program of such a process (``python -m quorumlog.local.node_spawner``): it has
one thread and never uses gRPC or LMDB, which would not survive a fork. What differs from a node that is a program of
its own: its parent, and what ``/proc`` shows as its command line and environment.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import IO

from quorumlog.local.cleanup_process import start_time
from quorumlog.server.config.settings import ENV_PREFIX

#: Two, because all nodes that a process forks have its hash seed, and a state machine must not depend on the order of a
#: set: nodes with odd and even ids have different ones.
SPAWNERS = 2
#: Time for a process to answer: on a busy machine its imports take many seconds.
_PATIENCE_S = 60.0
_OWNER_CHECK_S = 1.0
#: What a node's environment may have that its spawner's has not: the interpreter and libraries read all else when they
#: start.
_MAY_DIFFER = (ENV_PREFIX, "PYTEST_")
_MAX_REQUEST_BYTES = 4 << 20
_END = b"\n"
#: Without this, pyarrow starts a thread when it is imported, for an allocator that it does not use by default.
_ARROW_WITHOUT_THREAD = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}


class ForkedNode:
    """A node that was forked: the little of ``subprocess.Popen`` that its owner needs.

    Arguments:
        statuses: the end of a pipe, not blocking, that receives its exit status when it has ended.
    """

    def __init__(self, pid: int, statuses: IO[bytes]) -> None:
        self.pid = pid
        #: The exit status, negative for a signal, once ``is_running`` has returned False. None if its spawner ended
        #: first and the status is lost.
        self.returncode: int | None = None
        self._started = start_time(pid)
        self._statuses = statuses
        self._lock = threading.Lock()

    def is_running(self) -> bool:
        """True if the process exists, even if it is stopped (paused)."""
        with self._lock:
            if not self._statuses.closed:
                received = self._statuses.read()
                if received is None:
                    return True
                self._statuses.close()
                self.returncode = int(received) if received else None
        return self.returncode is None and start_time(self.pid) == self._started != ""


class NodeSpawner:
    """A process that forks nodes. It ends with its owner; its nodes do not.

    Arguments:
        environment: in which it imports the server.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._environment = dict(environment)
        self._is_over = False

    def start(self) -> None:
        """Starts the process, unless it was. It is not waited for."""
        with self._lock:
            if self._process is None and not self._is_over and os.getpid() == self._owner:
                self._link, theirs = socket.socketpair()
                self._link.settimeout(_PATIENCE_S)
                with theirs:
                    self._process = subprocess.Popen(
                        [sys.executable, "-m", "quorumlog.local.node_spawner", str(self._owner), str(theirs.fileno())],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        env=self._environment,
                        pass_fds=(theirs.fileno(),),
                        start_new_session=True,
                    )

    def fork(
        self, arguments: Sequence[str], environment: Mapping[str, str], log: IO[bytes], life_line: int | None
    ) -> ForkedNode | None:
        """Forks a node, in a session of its own and in the working directory of this process.

        Arguments:
            arguments: the flags of ``python -m quorumlog.server``.
            log: receives its stdout and stderr.
            life_line: a descriptor for the node, as for ``NodeProcess.spawn``; not among ``arguments``.

        Returns:
            The node; None if it has to be a program of its own: its environment differs in more than a fork can change,
            this is a forked child of the owner, or the spawner does not work.
        """
        with self._lock:
            if self._link is None or os.getpid() != self._owner or _fixed(environment) != _fixed(self._environment):
                return None
            try:
                directory = os.getcwd()
            except FileNotFoundError:
                return None
            request = {"arguments": list(arguments), "environment": dict(environment), "directory": directory}
            line = json.dumps(request).encode() + _END
            if len(line) > _MAX_REQUEST_BYTES:
                return None
            try:
                return self._request(self._link, line, [log.fileno(), *([] if life_line is None else [life_line])])
            except (OSError, ValueError):
                self._end()
                return None
            except BaseException:
                # An answer that was not received would be that to the next request.
                self._end()
                raise

    def close(self) -> None:
        """Ends the process. The nodes that it has forked continue."""
        with self._lock:
            if os.getpid() == self._owner:
                self._end()

    def _request(self, link: socket.socket, line: bytes, descriptors: list[int]) -> ForkedNode:
        ours, theirs = os.pipe()
        statuses = os.fdopen(ours, "rb", buffering=0)
        try:
            os.set_blocking(ours, False)
            try:
                socket.send_fds(link, [line[:1]], [theirs, *descriptors])
            finally:
                os.close(theirs)
            link.sendall(line[1:])
            return ForkedNode(int(_received_line(link)), statuses)
        except BaseException:
            statuses.close()
            raise

    def _end(self) -> None:
        self._is_over = True
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()


#: Those of this process, while ``forked_nodes`` is active.
_spawners: list[NodeSpawner] = []


@contextlib.contextmanager
def forked_nodes() -> Iterator[None]:
    """Inside the block, nodes that this process starts are forked, where the platform is Linux.

    A node whose environment is to differ from that of this process at the beginning of the block, by more than settings
    of nodes, is a program of its own.
    """
    if _spawners or sys.platform != "linux":
        yield
        return
    # As in the package: it may be imported for the first time later.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    _spawners.extend(NodeSpawner(os.environ) for _ in range(SPAWNERS))
    try:
        yield
    finally:
        for spawner in _spawners:
            spawner.close()
        _spawners.clear()


@contextlib.contextmanager
def separate_nodes() -> Iterator[None]:
    """Inside the block, nodes are programs of their own, also within ``forked_nodes``."""
    spawners = _spawners[:]
    _spawners.clear()
    try:
        yield
    finally:
        _spawners.extend(spawners)


def spawner_of(node_id: int) -> NodeSpawner | None:
    """Returns what forks a node; None outside of ``forked_nodes``."""
    # All at once: each imports for a while before it forks its first node.
    for spawner in _spawners:
        spawner.start()
    return _spawners[node_id % SPAWNERS] if _spawners else None


def _fixed(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(_MAY_DIFFER)}


def _received_line(link: socket.socket) -> bytes:
    """Receives a line.

    Raises:
        ConnectionError: the other side has ended.
    """
    line = b""
    while not line.endswith(_END):
        received = link.recv(65_536)
        if not received:
            raise ConnectionError("the other process has ended")
        line += received
    return line


# -- the program -------------------------------------------------------------------------------------------------------


class _Forks:
    """The work of a spawner process.

    Arguments:
        link: joins it to its owner.
        imported: environment variables that imported modules have set.
    """

    def __init__(self, owner: int, link: socket.socket, imported: Mapping[str, str]) -> None:
        self._owner = owner
        self._link = link
        self._imported = imported
        self._woken, self._waker = os.pipe()
        #: Ends of the pipes that receive the exit statuses, by process id.
        self._statuses: dict[int, int] = {}

    def run(self) -> list[str] | None:
        """Forks nodes until the owner ends; returns None then, and in each node its arguments."""
        for end in (self._woken, self._waker):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker)
        while os.getppid() == self._owner:
            readable, _, _ = select.select([self._link.fileno(), self._woken], [], [], _OWNER_CHECK_S)
            if self._woken in readable:
                os.read(self._woken, 4_096)
                self._reap()
            if self._link.fileno() in readable:
                try:
                    arguments = self._fork()
                except ConnectionError:
                    return None
                if arguments is not None:
                    return arguments
        return None

    def _fork(self) -> list[str] | None:
        """Forks what the owner asks for; returns the arguments in the node, None in the spawner."""
        first, descriptors, _, _ = socket.recv_fds(self._link, 1, 3)
        if not first:
            raise ConnectionError("the owner has ended")
        request = json.loads(first + _received_line(self._link))
        statuses, log, *life_line = descriptors
        # Otherwise a signal for the node could be handled by the spawner's handler, and be lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if not pid:
            self._become_node(log, statuses, request["directory"], request["environment"])
            return [*request["arguments"], *(f"--life-line={descriptor}" for descriptor in life_line)]
        self._statuses[pid] = statuses
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        for descriptor in (log, *life_line):
            os.close(descriptor)
        self._link.sendall(str(pid).encode() + _END)
        return None

    def _become_node(self, log: int, statuses: int, directory: str, environment: dict[str, str]) -> None:
        """Removes all that a process has which was not started as a node."""
        os.setsid()
        for stream in (1, 2):
            os.dup2(log, stream)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        self._link.close()
        for descriptor in (self._woken, self._waker, log, statuses, *self._statuses.values()):
            os.close(descriptor)
        os.environ.clear()
        os.environ.update({**self._imported, **environment})
        os.chdir(directory)

    def _reap(self) -> None:
        while self._statuses:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            statuses = self._statuses.pop(pid)
            with contextlib.suppress(BrokenPipeError):
                os.write(statuses, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(statuses)


def _main(owner: int, link: int) -> int:
    """Forks nodes until the owner ends; runs a node in each forked process. Returns the exit status."""
    before = {**os.environ, **_ARROW_WITHOUT_THREAD}
    os.environ.update(_ARROW_WITHOUT_THREAD)
    from quorumlog.server.__main__ import main as run_node
    from quorumlog.server.process.workers import IMPORTED_LATER

    for name in IMPORTED_LATER:
        import_module(name)
    if len(os.listdir("/proc/self/task")) > 1:
        # A fork has only one of its parent's threads: a lock that another one holds would stay held.
        return 1
    # Shared pages stay shared only while they are not written, as a collection would.
    gc.collect()
    gc.freeze()
    imported = {name: value for name, value in os.environ.items() if before.get(name) != value}
    arguments = _Forks(owner, socket.socket(fileno=link), imported).run()
    return 0 if arguments is None else run_node(arguments)


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1]), int(sys.argv[2])))
