"""Workers of a machine: a parent process that forks one node for each, restarts those that end, and stops them all.

Each worker is a node (``server/config/worker_settings.py``), in a process of its own. The parent only imports what they
run, so that they share its memory, and never uses gRPC: that would not survive a fork. A socket joins it to each
worker, which sends its notifications there, and stops when it is closed.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from quorumlog.server.config.listening import ListenError, check_apart, check_listening
from quorumlog.server.config.setting_values import AUTO, MAX_WORKERS
from quorumlog.server.config.settings import Settings, SettingsError
from quorumlog.server.config.worker_settings import settings_of_workers, worker_pid_file
from quorumlog.server.observability.logging_setup import Log, open_log
from quorumlog.server.process.os_limits import end_with_parent, usable_cores, usable_memory_bytes
from quorumlog.server.process.runtime import STOP_MARGIN_S, run
from quorumlog.server.process.service_manager import END, READY, STATUS, ServiceManager
from quorumlog.server.process.start_log import StartLog
from quorumlog.storage.meta_pages import DATA_FILE
from quorumlog.storage.synced_files import write_synced

#: File in the machine's data directory with the number of its workers.
COUNT_FILE = "WORKERS"
#: Memory that ``auto`` expects a worker to use.
WORKER_BYTES = 256 << 20
#: Pause before a worker is started again: the first one, which doubles with each early end, and the longest.
FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0
#: A worker that ran for this long did not end early.
SETTLED_S = 60.0
#: Time for a worker to stop, in addition to that of the node in it, until it is killed.
KILL_MARGIN_S = 3.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
#: Modules that a node imports when it needs them.
IMPORTED_LATER = (
    "quorumlog.server.node.node",
    "quorumlog.server.partition.compaction_pass",
    "quorumlog.server.process.metrics_page",
    "quorumlog.server.kafka.listener",
    "quorumlog.server.kafka.cluster_view",
)


def run_machine(settings: Settings, life_line: int | None = None) -> int:
    """Runs the node of these settings, or all workers of a machine, until a stop is requested or it fails.

    Arguments:
        life_line: as for ``run``.

    Returns:
        The exit status: 0 after a requested stop; otherwise 1, after one line on stderr with the reason.
    """
    try:
        if settings.workers == 1:
            refuse_other_count(settings.data_dir, None)
            workers = []
        else:
            workers = prepared(settings)
    except (SettingsError, ListenError) as error:
        StartLog(settings.log_format, settings.node_id).error(str(error))
        return 1
    if not workers:
        return run(settings, life_line)
    for name in IMPORTED_LATER:
        import_module(name)
    # Shared pages stay shared only while they are not written, as a collection would.
    gc.collect()
    gc.freeze()
    log = open_log(settings.log_level, settings.log_format, settings.node_id)
    return WorkerParent(workers, log, ServiceManager.of_environment(log), life_line).run()


def prepared(settings: Settings) -> list[Settings]:
    """Returns the settings of each worker, once all are valid and the data directory has their number.

    Raises:
        SettingsError: a setting, or the data directory, does not fit.
        ListenError: a worker may not or cannot listen on an address.
    """
    count = count_of(settings)
    refuse_other_count(settings.data_dir, count)
    workers = settings_of_workers(settings, count)
    check_apart(workers)
    for worker in workers:
        worker.node_options()
        check_listening(worker)
    _record_count(settings.data_dir, count)
    return workers


def count_of(settings: Settings) -> int:
    """Returns the number of workers; with ``auto`` that of the first start.

    Raises:
        SettingsError: the data directory cannot be read.
    """
    if settings.workers != AUTO:
        return int(settings.workers)
    known = _recorded_count(settings.data_dir)
    if known is not None:
        return known
    return max(1, min(usable_cores() - 1, usable_memory_bytes() // WORKER_BYTES, MAX_WORKERS))


def refuse_other_count(data_dir: Path, count: int | None) -> None:
    """Checks that a data directory is empty, or that of so many workers.

    Arguments:
        count: number of workers; None: a node without workers.

    Raises:
        SettingsError: it is not.
    """
    known = _recorded_count(data_dir)
    if known is not None and known != count:
        raise SettingsError(
            f"data directory {data_dir} belongs to {known} workers: start it with --workers {known}, or give"
            f" {'the node' if count is None else f'{count} workers'} an empty one"
        )
    if count is not None and known is None and (data_dir / DATA_FILE).exists():
        raise SettingsError(
            f"data directory {data_dir} belongs to a node without workers: start it without --workers, or give the"
            " workers an empty one"
        )


def _recorded_count(data_dir: Path) -> int | None:
    try:
        text = (data_dir / COUNT_FILE).read_text().strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"cannot use data directory {data_dir}: {error.strerror}") from None
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:9]) <= MAX_WORKERS:
        raise SettingsError(f"{data_dir / COUNT_FILE} is not a number of workers: restore the file")
    return int(text)


def _record_count(data_dir: Path, count: int) -> None:
    """Writes the number of workers, durably: another number would find other nodes in the folders."""
    if _recorded_count(data_dir) == count:
        return
    try:
        data_dir.mkdir(0o700, parents=True, exist_ok=True)
        write_synced(data_dir / COUNT_FILE, str(count))
    except OSError as error:
        raise SettingsError(f"cannot use data directory {data_dir}: {error.strerror}") from None


@dataclass(slots=True)
class _Worker:
    """One worker. ``link`` is the parent's end of its socket, None while it does not run.

    ``has_served``: it has been ready since the parent started. ``due_s``: when it is started again; None: it runs.
    """

    number: int
    settings: Settings
    pid: int = 0
    link: socket.socket | None = None
    received: bytes = b""
    is_ready: bool = False
    has_served: bool = False
    waits_for: str = ""
    started_s: float = 0.0
    pause_s: float = 0.0
    due_s: float | None = None

    @property
    def pid_file(self) -> Path:
        return worker_pid_file(self.settings.data_dir.parent, self.number)


class WorkerParent:
    """The parent of the workers.

    Arguments:
        workers: the settings of each.
        manager: notified when all serve, and when they stop.
        life_line: a descriptor to read; everything ends when it is closed.
    """

    def __init__(
        self, workers: Sequence[Settings], log: Log, manager: ServiceManager, life_line: int | None = None
    ) -> None:
        self._workers = [_Worker(number, settings) for number, settings in enumerate(workers)]
        self._log = log
        self._manager = manager
        self._life_line = life_line
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._status = 0
        self._kill_at_s: float | None = None

    def run(self) -> int:
        """Runs all workers until a stop is requested (SIGTERM, SIGINT), one cannot start, or the parent has exited.

        Returns:
            The exit status, as of ``run_machine``.
        """
        self._listen()
        try:
            for worker in self._workers:
                worker.pid_file.unlink(missing_ok=True)
            for worker in self._workers:
                self._start(worker)
            self._log.info("workers_started", workers=len(self._workers), pid=os.getpid())
            while any(worker.pid for worker in self._workers) or self._kill_at_s is None:
                for key, _ in self._selector.select(self._until_due_s()):
                    key.data()
                self._do_what_is_due()
        finally:
            signal.set_wakeup_fd(-1)
            self._kill_all()
        return self._status

    def _listen(self) -> None:
        for end in (self._woken, self._waker):
            end.setblocking(False)
        for number in _SIGNALS:
            # A handler in Python makes the descriptor below receive the signal's number.
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._waker.fileno())
        self._selector.register(self._woken, selectors.EVENT_READ, self._on_signals)
        if self._life_line is not None:
            os.set_blocking(self._life_line, False)
            self._selector.register(self._life_line, selectors.EVENT_READ, self._on_life_line)

    # -- events ----------------------------------------------------------------------------------------------------

    def _on_signals(self) -> None:
        numbers = self._woken.recv(4_096)
        if signal.SIGTERM in numbers or signal.SIGINT in numbers:
            self._stop()
        if signal.SIGCHLD in numbers:
            for worker in self._workers:
                self._reap(worker)

    def _on_life_line(self) -> None:
        assert self._life_line is not None
        if not os.read(self._life_line, 1):
            self._selector.unregister(self._life_line)
            self._log.error("node_failed", message="the parent process has exited")
            self._status = 1
            self._kill_at_s = 0.0

    def _on_notification(self, worker: _Worker) -> None:
        if worker.link is None:
            # A signal in the same round has led to its end.
            return
        try:
            received = worker.link.recv(4_096)
        except (BlockingIOError, ConnectionError):
            return
        if not received:
            # It is about to end; SIGCHLD follows.
            self._stop_watching(worker)
            return
        *complete, worker.received = (worker.received + received).split(END)
        for notification in complete:
            self._notified(worker, notification.decode(errors="replace"))

    def _notified(self, worker: _Worker, notification: str) -> None:
        if self._kill_at_s is not None:
            return
        lines = notification.splitlines()
        worker.is_ready = READY in lines
        worker.has_served |= worker.is_ready
        worker.waits_for = next((line.removeprefix(STATUS) for line in lines if line.startswith(STATUS)), "")
        waiting = [each for each in self._workers if not each.is_ready]
        if not waiting:
            self._manager.tell_ready()
        elif waiting[0].waits_for:
            self._manager.tell_waiting(f"worker {waiting[0].number}: {waiting[0].waits_for}")

    # -- processes -------------------------------------------------------------------------------------------------

    def _start(self, worker: _Worker) -> None:
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        # Otherwise a signal that arrives in between would be handled in the child by the parent's handler, and lost.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        pid = os.fork()
        if not pid:
            self._become(worker, ours, theirs, parent)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        theirs.close()
        ours.setblocking(False)
        worker.pid, worker.link, worker.received, worker.due_s = pid, ours, b"", None
        worker.is_ready, worker.waits_for = False, ""
        worker.started_s = time.monotonic()
        self._selector.register(ours, selectors.EVENT_READ, lambda: self._on_notification(worker))
        fresh = worker.pid_file.with_suffix(".new")
        fresh.write_text(f"{pid}\n")
        fresh.replace(worker.pid_file)

    def _become(self, worker: _Worker, ours: socket.socket, theirs: socket.socket, parent: int) -> NoReturn:
        """Runs the node of a worker in the process that was forked for it."""
        status = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            end_with_parent(parent)
            self._selector.close()
            # A worker that kept the parent's end of another's socket would keep that worker alive without its parent.
            for end in (ours, self._woken, self._waker, *(each.link for each in self._workers)):
                if end is not None:
                    end.close()
            status = run(worker.settings, theirs.fileno(), theirs)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            # What is registered to run at exit belongs to the parent.
            os._exit(status)

    def _reap(self, worker: _Worker) -> None:
        if not worker.pid:
            return
        pid, wait_status = os.waitpid(worker.pid, os.WNOHANG)
        if not pid:
            return
        self._close(worker)
        code = os.waitstatus_to_exitcode(wait_status)
        if self._kill_at_s is not None:
            self._status |= code > 0
            return
        if code > 0 and not worker.has_served:
            # Its settings or its data are wrong: it has said so, and would again.
            self._status = 1
            self._stop()
            return
        now = time.monotonic()
        early = now - worker.started_s < SETTLED_S
        worker.pause_s = min(2 * worker.pause_s, MAX_PAUSE_S) if early and worker.pause_s else FIRST_PAUSE_S
        worker.due_s = now + worker.pause_s
        self._log.warning(
            "worker_ended",
            worker=worker.settings.node_id,
            pid=pid,
            reason=f"status {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}",
            restart_in_s=worker.pause_s,
        )

    def _close(self, worker: _Worker) -> None:
        """Forgets the process of a worker, which has ended."""
        worker.pid = 0
        if worker.link is not None:
            # What it has sent last is still to be read: whether it has ever served.
            self._on_notification(worker)
            self._stop_watching(worker)
            worker.link.close()
        worker.link, worker.is_ready = None, False
        worker.pid_file.unlink(missing_ok=True)

    def _stop_watching(self, worker: _Worker) -> None:
        if worker.link is not None and worker.link in self._selector.get_map():
            self._selector.unregister(worker.link)

    # -- time ------------------------------------------------------------------------------------------------------

    def _until_due_s(self) -> float | None:
        due = [worker.due_s for worker in self._workers if worker.due_s is not None]
        due += [self._kill_at_s] if self._kill_at_s is not None else []
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _do_what_is_due(self) -> None:
        now = time.monotonic()
        if self._kill_at_s is not None:
            if now >= self._kill_at_s:
                self._kill_all()
            return
        for worker in self._workers:
            if worker.due_s is not None and now >= worker.due_s:
                self._start(worker)

    def _stop(self) -> None:
        """Requests all workers to hand over their leaderships and stop."""
        if self._kill_at_s is not None:
            return
        self._manager.tell_stopping()
        longest_ms = max(worker.settings.stop_timeout_ms for worker in self._workers)
        self._kill_at_s = time.monotonic() + longest_ms / 1_000 + STOP_MARGIN_S + KILL_MARGIN_S
        for worker in self._workers:
            worker.due_s = None
            if worker.pid:
                os.kill(worker.pid, signal.SIGTERM)

    def _kill_all(self) -> None:
        """Kills the workers that still run, and waits for them."""
        for worker in self._workers:
            if worker.pid:
                self._status = 1
                os.kill(worker.pid, signal.SIGKILL)
                os.waitpid(worker.pid, 0)
                self._close(worker)
