"""A connection that speaks Kafka's protocol, as a state machine: bytes come in; requests and responses go out.

It has no socket and no clock. The caller delivers bytes with ``receive``, takes requests with ``next_request`` until
it returns None, passes each response to ``answer``, sends what ``take_output`` returns, and reads from the socket only
while ``reads_on`` is true.

Clients rely on responses in the order of their requests: a response that is ready early waits for those before it, so
a fetch that waits for records delays the requests sent after it, as in Kafka.

Everything is bounded (``KafkaConnectionLimits``): the size of a frame, before any of it is stored; the number of
unanswered requests; the bytes that the client does not read; and the time for which it may be silent. A frame that is
not a request of a supported API and version closes the connection, because no response to it would be understood. The
one exception is ApiVersions (KIP-511).

Where clients have to authenticate, no other request is accepted before that, and limits on size and time are lower.
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
#: The APIs that clients need to authenticate.
_BEFORE_SIGN_IN = frozenset((API_VERSIONS, SaslHandshakeRequest.API_KEY, SaslAuthenticateRequest.API_KEY))


@dataclass(slots=True, frozen=True)
class KafkaConnectionLimits:
    """Limits of one connection.

    Arguments:
        request_bytes: size of a request without its four-byte length prefix.
        unanswered_requests: requests accepted before one is answered, and ApiVersions requests answered before the
            responses are handed out.
        unsent_bytes: unsent response bytes above which no more requests are accepted.
        silence_us: time without a complete request from a client that waits for no response.
        strangers_bytes: size of a request of an unauthenticated client, where authentication is required.
        strangers_requests: number of requests of such a client; no client needs more than six.
        sign_in_us: time to authenticate.
    """

    request_bytes: int = 100 << 20
    unanswered_requests: int = 100
    unsent_bytes: int = 32 << 20
    silence_us: int = 600_000_000
    strangers_bytes: int = 64 << 10
    strangers_requests: int = 20
    sign_in_us: int = 30_000_000


class KafkaConnectionFault(Enum):
    """Reasons to close a connection."""

    OVERSIZED = "oversized"  #: the length prefix of a request exceeds the limit
    MALFORMED = "malformed"  #: bytes that are not a request
    UNSERVED = "unserved"  #: an API or a version that is not supported
    SILENT = "silent"  #: no request for too long
    UNSIGNED = "unsigned"  #: the client has not authenticated, and has to
    REFUSED = "refused"  #: a request failed that has no response
    FAILED = "failed"  #: a request failed in a way that maps to no error code


class KafkaConnectionEnd(NamedTuple):
    """The reason to close a connection, with a detail of one line."""

    fault: KafkaConnectionFault
    detail: str


@dataclass(slots=True, eq=False)
class KafkaRequest:
    """A request that waits for its response.

    Arguments:
        client_id: the name that the client reports, if any.
    """

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    message: KafkaMessage
    #: The complete response with its length prefix, once known.
    answer: list[Buffer] | None = field(default=None, repr=False)


class KafkaConnection:
    """One client's connection.

    Arguments:
        now_us: time on the monotonic clock that all other calls use.
        asks_to_sign_in: until ``trust`` is called, only the APIs needed to authenticate are accepted.
    """

    def __init__(
        self, versions: VersionTable, limits: KafkaConnectionLimits, now_us: int, *, asks_to_sign_in: bool = False
    ) -> None:
        self._versions = versions
        self._limits = limits
        self._received = bytearray()
        #: In order of arrival; all but the first may already have their responses.
        self._unanswered: deque[KafkaRequest] = deque()
        self._output: list[Buffer] = []
        #: ApiVersions requests answered by the connection, whose responses were not handed out.
        self._told = 0
        #: Bytes of responses that were not handed out, and of those that were but have not been sent.
        self._kept_bytes = 0
        self._leaving_bytes = 0
        self._heard_us = now_us
        self._whole_requests = 0
        self._end: KafkaConnectionEnd | None = None
        #: When the connection ends if the client has not authenticated; None: it has, or need not.
        self._sign_in_ends_us = now_us + limits.sign_in_us if asks_to_sign_in else None

    @property
    def is_trusted(self) -> bool:
        """True if the client has authenticated, or need not."""
        return self._sign_in_ends_us is None

    @property
    def end(self) -> KafkaConnectionEnd | None:
        """The reason to close the connection; None while it is open. Pending output is sent before."""
        return self._end

    @property
    def reads_on(self) -> bool:
        """True if more should be read from the client."""
        return (
            self._end is None
            and len(self._unanswered) < self._limits.unanswered_requests
            and self._told < self._limits.unanswered_requests
            and self._kept_bytes + self._leaving_bytes <= self._limits.unsent_bytes
        )

    @property
    def kept_bytes(self) -> int:
        """Bytes of responses that were not handed out because they wait for an earlier one."""
        return self._kept_bytes

    @property
    def unfinished(self) -> tuple[int, int]:
        """Number of complete requests received, and of bytes received after the last of them."""
        return self._whole_requests, len(self._received)

    @property
    def silence_ends_us(self) -> int | None:
        """Time at which ``on_time`` closes an idle connection; None while the client waits for a response."""
        return None if self._unanswered or self._end else self._heard_us + self._limits.silence_us

    def receive(self, data: Buffer) -> None:
        """Buffers bytes received from the client."""
        if self._end is None:
            self._received += data

    def next_request(self, now_us: int) -> KafkaRequest | None:
        """Returns the next request; None if it is incomplete, or has to wait.

        Another one may be available after an answer, after ``take_output`` or after ``note_unsent``, without more
        bytes.
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
        """Closes the connection after a request failed that has no response in which to report it."""
        self._finish(KafkaConnectionFault.REFUSED, f"{request.api.name} without an answer failed: {detail}")

    def fail(self, request: KafkaRequest, detail: str) -> None:
        """Closes the connection after an internal error of the node."""
        self._finish(KafkaConnectionFault.FAILED, f"{request.api.name} of version {request.version} failed: {detail}")

    def trust(self) -> None:
        """Lifts the restrictions of an unauthenticated client."""
        self._sign_in_ends_us = None

    def distrust(self, detail: str) -> None:
        """Closes the connection after failed authentication, once the error response was queued."""
        self._finish(KafkaConnectionFault.UNSIGNED, detail)

    def take_output(self) -> list[Buffer]:
        """Returns the bytes to send, in order."""
        output, self._output = self._output, []
        self._told = 0
        taken_bytes = sum(map(len, output))
        self._kept_bytes -= taken_bytes
        self._leaving_bytes += taken_bytes
        return output

    def note_unsent(self, size_bytes: int) -> None:
        """Records how many of the bytes handed out have not been sent yet."""
        self._leaving_bytes = size_bytes

    def on_time(self, now_us: int) -> None:
        """Closes the connection of a client that was silent for too long, or has not authenticated in time."""
        if self._sign_in_ends_us is not None and now_us >= self._sign_in_ends_us:
            self._finish(
                KafkaConnectionFault.UNSIGNED, f"no authentication within {self._limits.sign_in_us // 1_000_000} s"
            )
        if self.silence_ends_us is not None and now_us >= self.silence_ends_us:
            self._finish(KafkaConnectionFault.SILENT, f"no request for {self._limits.silence_us // 1_000_000} s")

    def _next_frame(self) -> bytes | None:
        """Returns the next request's bytes, or None if they are incomplete."""
        if len(self._received) < _SIZE.size:
            return None
        (size,) = _SIZE.unpack_from(self._received)
        most = self._limits.request_bytes if self.is_trusted else self._limits.strangers_bytes
        if not 0 <= size <= most:
            before = "" if self.is_trusted else " before authentication"
            self._finish(KafkaConnectionFault.OVERSIZED, f"request of {size} bytes exceeds the limit of {most}{before}")
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
        """Parses the request in a frame; None if the connection has answered it, or has to be closed."""
        head = unpack_request_head(frame)
        if not self.is_trusted and self._is_one_too_many():
            return None
        api = self._versions.find(head.api_key, head.api_version)
        if api is None:
            if head.api_key == API_VERSIONS:
                # In version 0, which every client reads, so that the client retries with a version that is supported.
                self._tell_versions(head, version=0, error_code=UNSUPPORTED_VERSION)
            else:
                self._finish(KafkaConnectionFault.UNSERVED, f"API {head.api_key} in version {head.api_version}")
            return None
        if not self.is_trusted and head.api_key not in _BEFORE_SIGN_IN:
            self._finish(
                KafkaConnectionFault.UNSIGNED, f"{api.name} before authentication: set security.protocol=SASL_SSL"
            )
            return None
        client_id, at = unpack_client_id(frame, flexible=head.api_version >= api.request.FLEXIBLE_FROM)
        # Kafka ignores trailing bytes, and librdkafka relies on that: its Metadata request for all topics has three
        # bytes too many.
        message = decode(api.request, frame, head.api_version, at=at, to_the_end=False)
        if head.api_key == API_VERSIONS:
            self._tell_versions(head, head.api_version)
            return None
        request = KafkaRequest(api, head.api_version, head.correlation_id, client_id, message)
        self._unanswered.append(request)
        return request

    def _is_one_too_many(self) -> bool:
        """Closes the connection if an unauthenticated client exceeds its number of requests.

        Such requests cost the client nothing.
        """
        most = self._limits.strangers_requests
        if self._whole_requests <= most:
            return False
        self._finish(KafkaConnectionFault.UNSIGNED, f"more than {most} requests before authentication")
        return True

    def _tell_versions(self, head: RequestHead, version: int, error_code: int = 0) -> None:
        response = self._versions.response(version, error_code)
        request = KafkaRequest(APIS[API_VERSIONS], version, head.correlation_id, None, response)
        self._unanswered.append(request)
        self._put_answer(request, response, version)
        # They do not wait for the node, so only this limits how many of them one call answers.
        self._told += 1

    def _put_answer(self, request: KafkaRequest, response: KafkaMessage | None, version: int) -> None:
        if request.answer is not None:
            raise ValueError(f"a {request.api.name} request was answered twice")
        if response is None:
            request.answer = []
        else:
            # Clients read ApiVersions before they can tell which versions are flexible, so its response header never
            # is.
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
