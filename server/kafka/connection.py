"""A connection on which Kafka's protocol is spoken, as a state machine: bytes come in; requests and answers go out.

It knows no socket and no clock. Whoever has them brings bytes with ``receive``, takes requests with ``next_request``
until there is none, gives each its ``answer``, sends what ``take_output`` hands out, and reads from the socket only
while ``reads_on`` says so.

Clients rely on answers in the order of their requests: one that is there early waits for those before it, so a fetch
that waits for records holds up what was sent behind it, as in Kafka.

Everything is bounded (``KafkaConnectionLimits``): a frame before any of it is kept, requests that are not answered,
bytes that the client does not take, and its silence. What is no request of an API and version that is served ends the
connection, because nothing can be answered in a form that the client would understand. The one exception is the
question which versions there are (KIP-511).

Where clients have to sign in, nothing else is taken before, of a smaller size and not for long.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from struct import Struct
from typing import NamedTuple

from quorumlog.server.kafka.codec.apis import APIS, Api
from quorumlog.server.kafka.codec.headers import (
    RequestHead,
    pack_response_header,
    unpack_client_id,
    unpack_request_head,
)
from quorumlog.server.kafka.codec.primitives import Buffer, KafkaMessage, MalformedKafkaMessageError, decode, encode
from quorumlog.server.kafka.codec.sasl_requests import SaslAuthenticateRequest, SaslHandshakeRequest
from quorumlog.server.kafka.version_table import API_VERSIONS, UNSUPPORTED_VERSION, VersionTable

_SIZE = Struct(">i")
#: What clients need to sign in.
_BEFORE_SIGN_IN = frozenset((API_VERSIONS, SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY))


@dataclass(slots=True, frozen=True)
class KafkaConnectionLimits:
    """What one connection may take.

    Arguments:
        request_bytes: size of a request without the four bytes that say it.
        unanswered_requests: how many are taken before one is answered, and how many questions for versions are answered
            before the answers are handed out.
        unsent_bytes: of answers, from where no more requests are taken.
        silence_us: how long a client with nothing to wait for may send no whole request.
        strangers_bytes: size of a request of a client that has not signed in where it has to.
        strangers_requests: how many such a client may send: no client needs more than six.
        sign_in_us: how long it may take for that.
    """

    request_bytes: int = 32 << 20
    unanswered_requests: int = 100
    unsent_bytes: int = 32 << 20
    silence_us: int = 600_000_000
    strangers_bytes: int = 64 << 10
    strangers_requests: int = 20
    sign_in_us: int = 30_000_000


class KafkaConnectionFault(Enum):
    """Why a connection has to be closed."""

    OVERSIZED = "oversized"  #: a request that says it is larger than any may be
    MALFORMED = "malformed"  #: bytes that are no request
    UNSERVED = "unserved"  #: an API or a version that is not served
    SILENT = "silent"  #: nothing was asked for too long
    UNSIGNED = "unsigned"  #: the client has not signed in, and has to
    REFUSED = "refused"  #: a request failed that has no answer
    FAILED = "failed"  #: a request failed for which no error is known


class KafkaConnectionEnd(NamedTuple):
    """That a connection has to be closed, and why in one line."""

    fault: KafkaConnectionFault
    detail: str


@dataclass(slots=True, eq=False)
class KafkaRequest:
    """A request that a client waits for.

    Arguments:
        client_id: the name that the client gives itself, if it does.
    """

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    message: KafkaMessage
    #: The whole answer with its size, as soon as it is known.
    answer: list[Buffer] | None = field(default=None, repr=False)


class KafkaConnection:
    """One client's connection.

    Arguments:
        now_us: the time on the clock of all other calls, which never goes back.
        asks_to_sign_in: until ``trust`` nothing is taken but what it needs to sign in.
    """

    def __init__(
        self, versions: VersionTable, limits: KafkaConnectionLimits, now_us: int, *, asks_to_sign_in: bool = False
    ) -> None:
        self._versions = versions
        self._limits = limits
        self._received = bytearray()
        #: In the order of their arrival; those behind the first may have their answers.
        self._unanswered: deque[KafkaRequest] = deque()
        self._output: list[Buffer] = []
        #: Requests that were answered here, and whose answers were not handed out.
        self._told = 0
        #: Bytes of answers that were not handed out, and of those that were and have not left.
        self._kept_bytes = 0
        self._leaving_bytes = 0
        self._heard_us = now_us
        self._whole_requests = 0
        self._end: KafkaConnectionEnd | None = None
        #: When it ends if the client has not signed in by then; None: it has, or need not.
        self._sign_in_ends_us = now_us + limits.sign_in_us if asks_to_sign_in else None

    @property
    def is_trusted(self) -> bool:
        """Whether the client has signed in, or need not."""
        return self._sign_in_ends_us is None

    @property
    def end(self) -> KafkaConnectionEnd | None:
        """Why the connection has to be closed; None while it goes on. What is in ``take_output`` is sent before."""
        return self._end

    @property
    def reads_on(self) -> bool:
        """Whether more should be read from the client."""
        return (
            self._end is None
            and len(self._unanswered) < self._limits.unanswered_requests
            and self._told < self._limits.unanswered_requests
            and self._kept_bytes + self._leaving_bytes <= self._limits.unsent_bytes
        )

    @property
    def kept_bytes(self) -> int:
        """Bytes of answers that were not handed out: they wait for one before them."""
        return self._kept_bytes

    @property
    def unfinished(self) -> tuple[int, int]:
        """How many requests were whole so far, and bytes that have come behind them."""
        return self._whole_requests, len(self._received)

    @property
    def silence_ends_us(self) -> int | None:
        """When ``on_time`` ends the connection if nothing happens before; None while the client waits for an answer."""
        return None if self._unanswered or self._end else self._heard_us + self._limits.silence_us

    def receive(self, data: Buffer) -> None:
        """Takes bytes as they come from the client."""
        if self._end is None:
            self._received += data

    def next_request(self, now_us: int) -> KafkaRequest | None:
        """The next request; None where it is not there as a whole, or should wait.

        After an answer, after ``take_output`` or after ``note_unsent`` there may be one again, without that more was
        received.
        """
        while self.reads_on:
            frame = self._next_frame()
            if frame is None:
                return None
            self._heard_us = now_us
            try:
                request = self._request(frame)
            except MalformedKafkaMessageError as problem:
                self._finish(KafkaConnectionFault.MALFORMED, str(problem))
                return None
            if request is not None:
                return request
        return None

    def answer(self, request: KafkaRequest, response: KafkaMessage | None, now_us: int) -> None:
        """Answers a request, once.

        Arguments:
            response: None where the client expects none (a produce request with ``acks=0``).

        Raises:
            UnencodableMessageError: the response has something that its version cannot carry.
        """
        self._heard_us = now_us
        if self._end is None:
            self._put_answer(request, response, request.version)

    def refuse(self, request: KafkaRequest, detail: str) -> None:
        """Says that a request failed that has no answer: the client sees it by the connection's end."""
        self._finish(KafkaConnectionFault.REFUSED, f"{request.api.name} without an answer failed: {detail}")

    def fail(self, request: KafkaRequest, detail: str) -> None:
        """Says that a request met a fault of the node's own."""
        self._finish(KafkaConnectionFault.FAILED, f"{request.api.name} of version {request.version} failed: {detail}")

    def trust(self) -> None:
        """The client has signed in."""
        self._sign_in_ends_us = None

    def distrust(self, detail: str) -> None:
        """The client was not let in, which was answered."""
        self._finish(KafkaConnectionFault.UNSIGNED, detail)

    def take_output(self) -> list[Buffer]:
        """What is to be sent now, in this order."""
        output, self._output = self._output, []
        self._told = 0
        taken_bytes = sum(map(len, output))
        self._kept_bytes -= taken_bytes
        self._leaving_bytes += taken_bytes
        return output

    def note_unsent(self, size_bytes: int) -> None:
        """Takes note of how many of the bytes that were handed out have not left."""
        self._leaving_bytes = size_bytes

    def on_time(self, now_us: int) -> None:
        """Ends the connection of a client that was silent for too long, or has not signed in in time."""
        if self._sign_in_ends_us is not None and now_us >= self._sign_in_ends_us:
            self._finish(KafkaConnectionFault.UNSIGNED, f"no sign-in for {self._limits.sign_in_us // 1_000_000} s")
        if self.silence_ends_us is not None and now_us >= self.silence_ends_us:
            self._finish(KafkaConnectionFault.SILENT, f"no request for {self._limits.silence_us // 1_000_000} s")

    def _next_frame(self) -> bytes | None:
        """The next request's bytes, if all of them are there."""
        if len(self._received) < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._received)
        most = self._limits.request_bytes if self.is_trusted else self._limits.strangers_bytes
        if not 0 <= size <= most:
            before = "" if self.is_trusted else " before the sign-in"
            self._finish(KafkaConnectionFault.OVERSIZED, f"a request of {size} bytes, and it may have {most}{before}")
            return None
        end = _SIZE.size + size
        if len(self._received) < end:
            return None
        with memoryview(self._received) as received:
            frame = bytes(received[_SIZE.size : end])
        del self._received[:end]
        self._whole_requests += 1
        return frame

    def _request(self, frame: bytes) -> KafkaRequest | None:
        """The request in a frame; None where it needs nobody else."""
        head = unpack_request_head(frame)
        if not self.is_trusted and self._is_one_too_many():
            return None
        api = self._versions.find(head.api_key, head.api_version)
        if api is None:
            if head.api_key == API_VERSIONS:
                # In the version that everybody reads, so that the client asks again in one that is served.
                self._tell_versions(head, version=0, error_code=UNSUPPORTED_VERSION)
            else:
                self._finish(KafkaConnectionFault.UNSERVED, f"API {head.api_key} in version {head.api_version}")
            return None
        if not self.is_trusted and head.api_key not in _BEFORE_SIGN_IN:
            self._finish(KafkaConnectionFault.UNSIGNED, f"{api.name} before the sign-in: security.protocol=SASL_SSL")
            return None
        client_id, at = unpack_client_id(frame, flexible=head.api_version >= api.request.FLEXIBLE_FROM)
        # Kafka does not look at what stands behind a request, and librdkafka relies on that: it asks Metadata of all
        # topics with three bytes too many.
        message = decode(api.request, frame, head.api_version, at=at, to_the_end=False)
        if head.api_key == API_VERSIONS:
            self._tell_versions(head, head.api_version)
            return None
        request = KafkaRequest(api, head.api_version, head.correlation_id, client_id, message)
        self._unanswered.append(request)
        return request

    def _is_one_too_many(self) -> bool:
        """Whether a client that has not signed in asks once more than it may. What it asks costs it nothing."""
        most = self._limits.strangers_requests
        if self._whole_requests <= most:
            return False
        self._finish(KafkaConnectionFault.UNSIGNED, f"more than {most} requests before the sign-in")
        return True

    def _tell_versions(self, head: RequestHead, version: int, error_code: int = 0) -> None:
        response = self._versions.response(error_code)
        request = KafkaRequest(APIS[API_VERSIONS], version, head.correlation_id, None, response)
        self._unanswered.append(request)
        self._put_answer(request, response, version)
        # They wait for nobody, so only this bounds how many of them one call answers.
        self._told += 1

    def _put_answer(self, request: KafkaRequest, response: KafkaMessage | None, version: int) -> None:
        if request.answer is not None:
            raise ValueError(f"a {request.api.name} request was answered twice")
        if response is None:
            request.answer = []
        else:
            # Clients read the table of versions before they know which versions are flexible: its header never is.
            flexible = version >= response.FLEXIBLE_FROM and request.api.request.API_KEY != API_VERSIONS
            parts = [pack_response_header(request.correlation_id, flexible=flexible), *encode(response, version)]
            size = sum(map(len, parts))
            request.answer = [_SIZE.pack(size), *parts]
            self._kept_bytes += _SIZE.size + size
        while self._unanswered and self._unanswered[0].answer is not None:
            self._output += self._unanswered.popleft().answer or ()

    def _finish(self, fault: KafkaConnectionFault, detail: str) -> None:
        if self._end is None:
            self._end = KafkaConnectionEnd(fault, detail)
            self._received.clear()
            self._unanswered.clear()
