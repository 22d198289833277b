"""Listeners of a node: a gRPC server for each kind, with its own credentials, limits and services."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from quorumlog.server.certificates.pairs import Pair, WatchedPair
from quorumlog.server.config.settings import Settings, SettingsError
from quorumlog.server.metadata.records import SECOND_FEATURE_LEVEL
from quorumlog.server.observability.logging_setup import Log
from quorumlog.server.observability.metric_catalogue import Readings
from quorumlog.server.observability.metrics import Meters
from quorumlog.server.process.driver import DrivenNode, Driver
from quorumlog.server.process.os_limits import room_for_connections
from quorumlog.server.process.peer_listeners import PeerListeners
from quorumlog.server.step.request_context import Listener
from quorumlog.server.transport.channel_options import ConnectionLimits
from quorumlog.server.transport.clients.admin_service import admin_handlers
from quorumlog.server.transport.clients.data_plane_service import DataPlaneService
from quorumlog.server.transport.clients.groups_service import GroupsService
from quorumlog.server.transport.clients.session_gate import SessionGate
from quorumlog.server.transport.clients.sign_in_service import KeysForNode, sign_in_handlers
from quorumlog.server.transport.clients.transactions_service import transaction_handlers
from quorumlog.server.transport.clients.unary_calls import Handlers
from quorumlog.server.transport.credentials import server_credentials
from quorumlog.server.transport.failed_handshakes import FailedHandshakes
from quorumlog.server.transport.grpc_server import GrpcServer, wait_for_calls
from quorumlog.server.transport.tls_contexts import TlsContexts

if TYPE_CHECKING:
    from quorumlog.server.kafka.listener import KafkaListener

#: Maximum size of a message of an unauthenticated caller.
_STRANGERS_BYTES = 64 << 10


def watch_pair(settings: Settings, listener: Listener, log: Log, name: str = "") -> WatchedPair | None:
    """Returns the watched files of a listener; None for one without TLS.

    Arguments:
        name: name in the log, if it differs from the kind.

    Raises:
        CertificateError: they cannot be used.
    """
    if listener is Listener.PLAINTEXT:
        return None

    name = name or listener.name.lower()

    def taken(pair: Pair) -> None:
        log.info("certificate_taken", listener=name, ends_s=pair.validity.ends_s)

    def refused(reason: str) -> None:
        log.warning("certificate_not_taken", listener=name, reason=reason)

    return WatchedPair(settings.pair_files(listener), refused, taken)


class Listeners:
    """The servers of a node.

    Attributes:
        failed_handshakes: reports failed TLS handshakes, of the port for Kafka's clients and of the metrics page.

    Raises:
        ListenError: listening on an address failed.
        CertificateError: the files of a listener cannot be used.
        SettingsError: the keys for tokens cannot be used.
    """

    def __init__(self, settings: Settings, node: DrivenNode, driver: Driver, log: Log, meters: Meters) -> None:
        self._settings = settings
        self._pairs: list[WatchedPair] = []
        self._servers: list[GrpcServer] = []
        places = settings.listeners
        wanted = settings.max_connections
        listeners = len(places) + (settings.kafka_listen is not None)
        connections = max(1, room_for_connections(wanted * listeners) // listeners)
        if connections < wanted:
            log.warning("connections_limited", max_connections=connections, reason="file descriptors (ulimit -n)")
        kafka_pair = None
        if settings.kafka_listen is not None and settings.kafka_proof is not None:
            kafka_pair = watch_pair(settings, settings.kafka_proof, log, "kafka")
            self._pairs += [kafka_pair] if kafka_pair is not None else []
        self.failed_handshakes = FailedHandshakes(log, driver.tell_audit)
        keys = _token_keys(settings, driver, log)
        self._kafka = _kafka_listener(
            settings, connections, node, driver, log, meters, kafka_pair, self.failed_handshakes, keys
        )
        self._supervisor = driver.supervisor
        clients = _client_handlers(settings, driver, meters)
        self._peers = PeerListeners(settings, node, driver, log, meters)
        for listener, address in places.items():
            watched = watch_pair(settings, listener, log)
            handlers = self._peers.handlers(listener, watched)
            gates: tuple[grpc.aio.ServerInterceptor[bytes, bytes], ...] = ()
            limits = ConnectionLimits(connections=connections)
            if listener is not Listener.PEER:
                handlers = (*clients, *handlers)
            if listener is Listener.PASSWORD:
                handlers = (*handlers, sign_in_handlers(driver.requests, meters, keys))
                gates = (SessionGate(driver.requests),)
                limits = ConnectionLimits(connections=connections, unasked_bytes=_STRANGERS_BYTES)
            credentials = None
            if watched is not None:
                self._pairs.append(watched)
                credentials = server_credentials(watched)
            self._servers.append(
                GrpcServer(address, handlers, limits, credentials, requests=driver.requests, interceptors=gates)
            )

    async def start(self) -> None:
        """Starts serving; not yet healthy."""
        await self._peers.start()
        for server in self._servers:
            await server.start()
        self._supervisor.start(self.failed_handshakes.run(), "failed-handshakes")
        if self._kafka is not None:
            self._supervisor.start(self._kafka.run(), "kafka-listener")

    async def set_serving(self, serving: bool) -> None:
        """Sets the answer of the health services."""
        for server in self._servers:
            await server.set_serving(serving)

    async def stop(self, grace_s: float) -> None:
        """Refuses new calls, waits ``grace_s`` seconds for calls in progress, then cancels and awaits them."""
        if self._kafka is not None:
            self._kafka.stop()
        self._peers.close()
        await asyncio.gather(*(server.end_calls(grace_s) for server in self._servers))
        await wait_for_calls()

    def readings(self) -> Readings:
        """Returns the certificate's remaining validity in seconds (infinite without TLS), and the Kafka connections."""
        ends_s = (pair.current().validity.ends_s for pair in self._pairs)
        return {
            "certificate_expiry_seconds": min(ends_s, default=math.inf) - time.time(),
            "peer_sockets": float(self._peers.connections),
            "kafka_connections": float(self._kafka.connections if self._kafka is not None else 0),
        }


def _kafka_listener(
    settings: Settings,
    connections: int,
    node: DrivenNode,
    driver: Driver,
    log: Log,
    meters: Meters,
    pair: WatchedPair | None,
    failed: FailedHandshakes,
    keys: KeysForNode | None,
) -> KafkaListener | None:
    if settings.kafka_listen is None:
        return None
    # Imports Arrow, which is needed only by those who use it.
    from quorumlog.server.kafka.cluster_view import ImageView
    from quorumlog.server.kafka.connection import KafkaConnectionLimits
    from quorumlog.server.kafka.listener import KafkaListener, KafkaListenerOptions

    options = KafkaListenerOptions(
        settings.kafka_listen,
        connections=connections,
        connections_per_ip=settings.kafka_max_connections_per_ip,
        creates_topics=settings.kafka_auto_create_topics_enable,
        feature_level=SECOND_FEATURE_LEVEL,
        limits=KafkaConnectionLimits(request_bytes=settings.kafka_max_request_bytes),
        proof=settings.kafka_proof,
        keys=keys,
    )
    contexts = TlsContexts(pair) if pair is not None else None
    log = log.named("server.kafka")
    view = ImageView(node, settings.node_id)
    listener = KafkaListener(options, view, driver.requests, log, meters, contexts, failed)
    driver.followers.append(listener)
    return listener


def _client_handlers(settings: Settings, driver: Driver, meters: Meters) -> tuple[Handlers, ...]:
    data_plane = DataPlaneService(driver.requests, settings.node_options().limits, meters)
    driver.followers.append(data_plane)
    groups = GroupsService(driver.requests, meters)
    transactions = transaction_handlers(driver.requests, meters)
    return data_plane.handlers(), groups.handlers(), transactions, admin_handlers(driver.requests, meters)


def _token_keys(settings: Settings, driver: Driver, log: Log) -> KeysForNode | None:
    """Returns the keys by which tokens are verified; None if the node accepts none.

    Raises:
        SettingsError: they cannot be used.
    """
    options = settings.token_options()
    if options is None:
        return None
    try:
        # Imports optional libraries.
        from quorumlog.server.access.key_set import KeySetError
        from quorumlog.server.access.watched_keys import WatchedKeys
    except ModuleNotFoundError as missing:
        raise SettingsError(
            f"sasl_oauthbearer_jwks_file needs the package {missing.name}, which is not installed:"
            " pip install 'quorumlog[oauth]'"
        ) from None

    def taken(keys: int) -> None:
        log.info("token_keys_taken", keys=keys)

    def refused(reason: str) -> None:
        log.warning("token_keys_not_taken", reason=reason)

    try:
        return KeysForNode(WatchedKeys(options, refused, taken), driver.emit)
    except KeySetError as problem:
        raise SettingsError(f"sasl_oauthbearer_jwks_file: {problem}") from None
