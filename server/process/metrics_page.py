"""Pages for Prometheus, liveness and readiness, with the authorization to read metrics."""

from __future__ import annotations

import asyncio
import platform
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    make_wsgi_app,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from quorumlog.server.certificates.pairs import WatchedPair
from quorumlog.server.config.listening import ListenError
from quorumlog.server.observability.metric_catalogue import CATALOGUE, MetricKind, Readings
from quorumlog.server.observability.metrics import Histogram, Meters
from quorumlog.server.process.http_server import CLIENT, PageHandler, PageServer, TlsPageServer
from quorumlog.server.step.request_context import RequestContext
from quorumlog.server.transport.clients.client_requests import ClientRequests, NodeStoppingError
from quorumlog.server.transport.clients.request_times import RequestTimes
from quorumlog.v1 import admin_pb2, errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode

if TYPE_CHECKING:
    from prometheus_client.core import Metric


Answer = TypeVar("Answer")

#: How long a scrape, or a liveness probe, waits for the node's own thread (s).
ANSWER_TIMEOUT_S = 2.0
_PREFIX = "quorumlog_"

#: By labels: the cumulative buckets, and the sum of the observations.
_Histograms: TypeAlias = "dict[tuple[str, ...], tuple[list[tuple[str, float]], float]]"
#: Errors of a client that is not authenticated, or has no permission.
_REFUSED = frozenset((ErrorCode.SASL_AUTHENTICATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED))


@dataclass(slots=True, frozen=True)
class SecuredPages:
    """Pages for clients with a user's certificate.

    Arguments:
        listen: host:port.
        watched: the server's certificate, with the authorities of users.
        refusal: returns why a client may not read the metrics, in one line; empty if it may. Awaited on the loop.
        failed: called with address and reason of failed handshakes, on the loop's thread.
    """

    listen: str
    watched: WatchedPair
    refusal: Callable[[RequestContext], Coroutine[Any, Any, str]]
    failed: Callable[[str, str], None]


async def refuse_scrape(requests: ClientRequests, client: RequestContext) -> str:
    """Returns why a client may not read the metrics, in one line; empty if it may.

    A client that may describe the node may read its metrics. The node decides by its ACLs and revocations, as for any
    other request, and writes the decision to the audit log.
    """
    try:
        reply = await requests.ask(admin_pb2.DescribeNodeRequest(), 0, ANSWER_TIMEOUT_S, client)
    except (TimeoutError, NodeStoppingError):
        return "the node does not respond"
    refused = reply if isinstance(reply, errors_pb2.Error) else None
    if isinstance(reply, admin_pb2.DescribeNodeResponse) and reply.HasField("error"):
        refused = reply.error
    return refused.message if refused is not None and refused.code in _REFUSED else ""


class MetricsPage:
    """Serves ``/metrics``, ``/livez`` and ``/readyz`` over HTTP.

    Arguments:
        listen: host:port for every client that can reach it; None: not served.
        secured: address and checks of the pages that require a certificate; None: not served.
        readings: ``Node.readings``; called on the loop's thread, which owns the node.
        not_ready: returns why the node does not serve clients, in one line; empty if it does. Called on the loop's
            thread.
        build: version of this program, and if it is compiled.
        times: of clients' requests; read on the loop's thread.

    Raises:
        ListenError: listening on the address failed.
    """

    def __init__(
        self,
        listen: str | None,
        secured: SecuredPages | None,
        meters: Meters,
        readings: Callable[[], Readings],
        not_ready: Callable[[], str],
        build: tuple[str, bool],
        times: RequestTimes,
    ) -> None:
        self._times = times
        self._meters = meters
        self._readings = readings
        self._not_ready = not_ready
        version, compiled = build
        self._build: tuple[str, ...] = (version, platform.python_version(), str(compiled).lower())
        self._loop = asyncio.get_running_loop()
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        self._metrics = make_wsgi_app(registry)
        self._secured = secured
        self._servers: list[PageServer] = []
        if listen is not None:
            self._start("metrics_listen", listen, PageServer)
        if secured is not None:
            kind = partial(TlsPageServer, watched=secured.watched, failed=self._tell_failed)
            self._start("metrics_tls_listen", secured.listen, kind)

    def _start(self, name: str, address: str, kind: Callable[..., PageServer]) -> None:
        host, _, port = address.rpartition(":")
        try:
            server = kind((host.strip("[]"), int(port)), PageHandler)
        except OSError as error:
            raise ListenError(f"{name} = {address}: cannot listen on this address: {error.strerror}") from None
        self._servers.append(server)
        server.set_app(self._serve)
        threading.Thread(target=server.serve_forever, name=f"quorumlog-{name}", daemon=True).start()

    def describe(self) -> Iterator[Metric]:
        """Yields nothing: asking the node requires a running loop."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yields the metrics of one scrape. Called on a thread of the HTTP server."""
        readings, histograms = self._ask(self._read)
        for name, value in readings.items():
            yield _shown(name, value)
        for name, rows in histograms.items():
            family = CATALOGUE[name]
            metric = HistogramMetricFamily(f"{_PREFIX}{name}", family.help, labels=family.labels)
            for label, (buckets, total) in rows.items():
                metric.add_metric(label, buckets, total)
            yield metric

    def _read(self) -> tuple[Readings, dict[str, _Histograms]]:
        """Reads everything at one moment, on the loop's thread: figures, and histograms by labels (buckets and sum)."""
        times, build = self._times, {self._build: 1.0}
        errors: dict[tuple[str, ...], float] = dict(times.errors.items())
        readings: Readings = {
            **self._readings(),
            **self._meters.counters(),
            "build_info": build,
            "request_errors": errors,
        }
        histograms: dict[str, dict[tuple[str, ...], Histogram]] = {
            "fsync_seconds": {(): self._meters.fsync_seconds},
            "request_seconds": {(kind,): each for kind, each in times.seconds.items()},
            "produce_stage_seconds": {(stage,): each for stage, each in times.stages.items()},
        }
        return readings, {
            name: {labels: (each.cumulative(), each.total) for labels, each in rows.items()}
            for name, rows in histograms.items()
        }

    def close(self) -> None:
        """Stops serving."""
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "/")
        if path == "/metrics":
            if refused := self._refuse(environ.get(CLIENT)):
                return _answer(start_response, "403 Forbidden", refused)
            page: Iterable[bytes] = self._metrics(environ, start_response)
            return page
        if path in ("/livez", "/readyz"):
            try:
                reason = self._ask(self._not_ready)
            except TimeoutError:
                return _answer(start_response, "503 Service Unavailable", "the node does not respond")
            if path == "/readyz" and reason:
                return _answer(start_response, "503 Service Unavailable", reason)
            return _answer(start_response, "200 OK", "ok")
        return _answer(start_response, "404 Not Found", "not found: request /metrics, /livez or /readyz")

    def _refuse(self, client: RequestContext | None) -> str:
        """Returns why a client may not read the metrics; empty if it may, or if the page needs no authentication."""
        if client is None or self._secured is None:
            return ""
        refusal = asyncio.run_coroutine_threadsafe(self._secured.refusal(client), self._loop)
        try:
            return refusal.result(ANSWER_TIMEOUT_S)
        except TimeoutError:
            refusal.cancel()
            return "the node does not respond"

    def _tell_failed(self, host: str, reason: str) -> None:
        """Reports a failed handshake. Called on the connection's thread."""
        assert self._secured is not None, "handshakes exist only with TLS"
        self._loop.call_soon_threadsafe(self._secured.failed, host, reason)

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        """Calls a function on the node's own thread.

        Raises:
            TimeoutError: no result in time.
        """
        answer: Future[Answer] = Future()

        def ask() -> None:
            try:
                answer.set_result(question())
            except Exception as error:
                # Report it to the caller: a missing figure must not stop the node.
                answer.set_exception(error)

        self._loop.call_soon_threadsafe(ask)
        return answer.result(ANSWER_TIMEOUT_S)


def _shown(name: str, value: object) -> Metric:
    family = CATALOGUE[name]
    kind = CounterMetricFamily if family.kind is MetricKind.COUNTER else GaugeMetricFamily
    metric: Metric = kind(f"{_PREFIX}{name}", family.help, labels=family.labels)
    rows = value if isinstance(value, dict) else {(): value}
    for labels, number in rows.items():
        metric.add_metric(labels, number)  # type: ignore[attr-defined]  # both kinds have it
    return metric


def _answer(start_response: Callable[..., Any], status: str, text: str) -> list[bytes]:
    start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")])
    return [text.encode() + b"\n"]
