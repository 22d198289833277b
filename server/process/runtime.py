"""Assembles a node process, runs it, and shuts it down."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import secrets
import signal
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import uvloop

from quorumlog.pure import is_compiled
from quorumlog.server.certificates.x509 import CertificateError
from quorumlog.server.config.listening import ListenError, check_listening
from quorumlog.server.config.settings import Settings, SettingsError
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.observability.logging_setup import Log, NodeLog, open_log, take_over_library_logs
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.process.audit_log import AuditLog, AuditLogError
from quorumlog.server.process.driver import DrivenNode, Driver
from quorumlog.server.process.listeners import Listeners, watch_pair
from quorumlog.server.process.metrics_page import refuse_scrape
from quorumlog.server.process.os_limits import keep_freed_memory
from quorumlog.server.process.service_manager import ServiceManager
from quorumlog.server.process.start_log import StartLog
from quorumlog.server.step.dynamic_values import DynamicValues
from quorumlog.server.step.events import StopRequested
from quorumlog.server.step.request_context import Listener
from quorumlog.server.transport.credentials import PeerDialer
from quorumlog.storage.crash_marker import CrashMarker, check_all_pages, last_words
from quorumlog.storage.interface import DamageError, StorageEngineError
from quorumlog.storage.quarantine import keep_directory_id, move_aside
from quorumlog.storage.recheck_list import are_pages_suspect
from quorumlog.storage.storage import Storage
from quorumlog.storage.writer import StorageWriter

#: Interval for checking readiness, for the health service: while the node starts, and afterwards.
STARTING_INTERVAL_S = 0.05
SETTLED_INTERVAL_S = 0.5
#: A node that is not ready after this time logs the reason, once for each; most are ready sooner.
TOLD_AFTER_S = 2.0
#: Time for calls in progress to finish after the node has stopped.
STOP_GRACE_S = 0.2
#: Added to the node's own stop timeout; after that the process stops without the node's consent.
STOP_MARGIN_S = 2.0
#: Name of the audit log in the data directory of a node without a file for it, should it be switched on.
AUDIT_FILE = "audit.log"


def run(settings: Settings, life_line: int | None = None, parent: socket.socket | None = None) -> int:
    """Runs one node until it is requested to stop (SIGTERM, SIGINT) or fails.

    Arguments:
        life_line: a file descriptor to read; the node stops when it is closed. The parent process holds the other end,
            which the operating system closes if the parent dies.
        parent: the life line of a worker, which notifies its parent over it instead of the service manager.

    Returns:
        The exit status: 0 after a requested stop; otherwise 1, after one line on stderr with the reason.
    """
    keep_freed_memory()
    try:
        check_listening(settings)
        with open_storage(settings) as storage, CrashMarker(settings.data_dir):
            node = make_node(settings, storage)
            log = open_log(settings.log_level, settings.log_format, settings.node_id)
            take_over_library_logs(log)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                manager = ServiceManager.of_environment(log) if parent is None else ServiceManager(None, log, parent)
                runner.run(serve(settings, node, storage, log, manager, life_line))
    except (SettingsError, ListenError, CertificateError, StorageEngineError, AuditLogError, NodeError) as error:
        StartLog(settings.log_format, settings.node_id).error(str(error))
        return 1
    return 0


def open_storage(settings: Settings) -> Storage:
    """Opens the node's storage, after the checks that its previous process made necessary.

    Raises:
        StorageEngineError: it cannot be opened; also if it is damaged and must not be moved aside.
    """
    try:
        return _open_checked(settings)
    except DamageError as damage:
        if settings.damaged_storage != "move-aside":
            raise
        place = move_aside(settings.data_dir)
        StartLog(settings.log_format, settings.node_id).warning(f"{damage}; moved to {place}, the node starts empty")
    return _open_checked(settings)


def _open_checked(settings: Settings) -> Storage:
    killed_by = last_words(settings.data_dir)
    if killed_by:
        StartLog(settings.log_format, settings.node_id).warning(
            f"the previous process was killed by a signal ({killed_by}): checking every page of its storage"
        )
        check_all_pages(settings.data_dir)
    elif are_pages_suspect(settings.data_dir):
        StartLog(settings.log_format, settings.node_id).warning(
            "pages of the storage were damaged: checking every page"
        )
        check_all_pages(settings.data_dir)
    return Storage(
        settings.data_dir,
        map_size=settings.storage_map_size_bytes,
        # No other group records the voters of the metadata.
        may_set_aside=lambda group: group != METADATA_GROUP,
        may_mend=True,
    )


class NodeError(Exception):
    """Raised if the node cannot start, or had to stop. The message is one line."""


def make_node(settings: Settings, storage: Storage) -> DrivenNode:
    """Constructs the node of these settings, with its state from storage.

    Raises:
        SettingsError: settings contradict each other.
        NodeError: the data directory belongs to another node.
    """
    from quorumlog.server.node.node import Node

    options = settings.node_options()
    now_us, wall_ms = time.monotonic_ns() // 1_000, time.time_ns() // 1_000_000
    try:
        # Sessions, and the salts of users that do not exist, must be unpredictable.
        return Node(options, storage, random.SystemRandom(), now_us, wall_ms, secrets.randbits(63))
    except ValueError as error:
        raise NodeError(f"data directory {settings.data_dir}: {error}") from error


async def serve(
    settings: Settings,
    node: DrivenNode,
    storage: Storage,
    log: NodeLog,
    manager: ServiceManager,
    life_line: int | None = None,
) -> None:
    """Serves until the node halts.

    Raises:
        ListenError: listening on an address failed.
        CertificateError: a certificate or a key cannot be used.
        AuditLogError: the audit log cannot be written.
        NodeError: the node stopped without being requested to.
    """
    meters = Meters()
    audit = _audit_log(settings, log)
    dialer = PeerDialer(watch_pair(settings, settings.peer_listener, log))
    driver = Driver(node, settings.controllers, log, meters, dialer, audit)
    asyncio.get_running_loop().set_exception_handler(_unhandled(driver))
    server = Listeners(settings, node, driver, log.named("server.transport"), meters)
    driver.followers.append(FollowingLog(log))
    exporter = None
    if settings.metrics_listen is not None or settings.metrics_tls_listen is not None:
        # Imports an optional library.
        from quorumlog.server.process.metrics_page import MetricsPage, SecuredPages

        build = (settings.node_options().version, is_compiled())
        secured = None
        if settings.metrics_tls_listen is not None:
            watched = watch_pair(settings, Listener.CLIENT, log, "metrics")
            assert watched is not None, "the TLS settings must be set together"
            secured = SecuredPages(
                settings.metrics_tls_listen,
                watched,
                partial(refuse_scrape, driver.requests),
                partial(server.failed_handshakes.failed, "metrics_tls_listen"),
            )
        exporter = MetricsPage(
            settings.metrics_listen,
            secured,
            meters,
            lambda: node.readings() | server.readings(),
            lambda: _why_not_ready(node),
            build,
            driver.requests.times,
        )
    writer = StorageWriter(storage, driver.storage_completed)
    try:
        await server.start()
        driver.start(writer)
        log.info("node_started", listen=settings.listen, data_dir=str(settings.data_dir), pid=os.getpid())
        driver.supervisor.start(_watch_health(settings, node, driver, server, log, manager), "health")
        stop_asked = _watch_for_stop(driver, life_line)
        # Nothing allocated so far is garbage: excluding it shortens every later collection.
        gc.collect()
        gc.freeze()
        await _wait_for_end(settings, driver, server, stop_asked, manager)
    finally:
        await driver.supervisor.stop()
        driver.links.close()
        driver.requests.close()
        await server.stop(STOP_GRACE_S)
        driver.jobs.stop()
        writer.stop()
        if exporter is not None:
            exporter.close()
        audit.close()
    if driver.error is not None:
        raise NodeError(f"node {settings.node_id} stopped: {driver.error}")
    log.info("node_stopped")


def _audit_log(settings: Settings, log: Log) -> AuditLog:
    place = settings.audit_log or settings.data_dir / AUDIT_FILE
    return AuditLog(place, settings.node_id, log, is_on=settings.audit_log is not None)


class FollowingLog:
    """Changes the levels of a log at run time."""

    def __init__(self, log: NodeLog) -> None:
        self._log = log

    def follow_settings(self, values: DynamicValues) -> None:
        """Applies the levels."""
        self._log.follow_levels(values.log_levels)


def _why_not_ready(node: DrivenNode) -> str:
    """Returns why the node does not serve; empty if it does, which includes a node whose disk is nearly full."""
    described = node.describe()
    return "" if described.ready else described.reason


def _watch_for_stop(driver: Driver, life_line: int | None) -> asyncio.Event:
    """Listens for signals and the life line; returns an event that is set when a stop is requested."""
    loop = asyncio.get_running_loop()
    stop_requested = asyncio.Event()

    def ask() -> None:
        if not stop_requested.is_set():
            stop_requested.set()
            driver.emit(StopRequested())

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask)
    if life_line is not None:
        os.set_blocking(life_line, False)

        def read(descriptor: int) -> None:
            try:
                ended = not os.read(descriptor, 1)
            except BlockingIOError:
                return
            if ended:
                loop.remove_reader(descriptor)
                driver.halt("the parent process has exited")

        loop.add_reader(life_line, read, life_line)
    return stop_requested


async def _wait_for_end(
    settings: Settings, driver: Driver, server: Listeners, stop_asked: asyncio.Event, manager: ServiceManager
) -> None:
    halted = asyncio.ensure_future(driver.wait_halted())
    stop_requested = asyncio.ensure_future(stop_asked.wait())
    await asyncio.wait((halted, stop_requested), return_when=asyncio.FIRST_COMPLETED)
    stop_requested.cancel()
    if not halted.done():
        manager.tell_stopping()
        await server.set_serving(False)
        await asyncio.wait((halted,), timeout=settings.stop_timeout_ms / 1_000 + STOP_MARGIN_S)
    if not halted.done():
        halted.cancel()
        driver.halt("it did not hand over its leaderships and stop in time")


async def _watch_health(
    settings: Settings, node: DrivenNode, driver: Driver, server: Listeners, log: Log, manager: ServiceManager
) -> None:
    """Keeps the health service in step with the node's readiness, and logs what a node waits for.

    Otherwise a node that cannot reach the others at its first start would be silent indefinitely.
    """
    clock = asyncio.get_running_loop().time
    was_ready_s, reported, is_kept = clock(), "", False
    while True:
        described = node.describe()
        ready = described.ready
        if ready:
            driver.become_settled()
            # Stored beside the data: if they are damaged one day, their owner may be unreadable.
            if not is_kept:
                is_kept = keep_directory_id(settings.data_dir, node.identity.directory_id)
            if reported:
                log.info("node_ready")
            was_ready_s, reported = clock(), ""
        elif described.reason != reported and clock() > was_ready_s + TOLD_AFTER_S:
            reported = described.reason
            log.warning("node_not_ready", reason=reported)
            manager.tell_waiting(reported)
        await server.set_serving(ready)
        if ready:
            manager.tell_ready()
        await asyncio.sleep(SETTLED_INTERVAL_S if ready else STARTING_INTERVAL_S)


def _unhandled(driver: Driver) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """Returns the loop's handler of exceptions that no task awaits: they stop the node like any other."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception):
            driver.fail(str(context.get("message", "a callback")), error)

    return handle
