"""Authentication of Kafka clients: requests accepted before it, its responses, and errors that close the connection."""

from __future__ import annotations

import base64
import os
import struct
from collections.abc import Callable
from itertools import count
from random import Random

import pytest
from google.protobuf.message import Message as ProtoMessage
from sign_in_rig import SignInRig

from quorumlog.server.kafka.client import KafkaClient
from quorumlog.server.kafka.cluster_view import ImageView
from quorumlog.server.kafka.codec.apis import APIS
from quorumlog.server.kafka.codec.headers import RequestHead, pack_request_header, unpack_response_header
from quorumlog.server.kafka.codec.metadata_requests import MetadataRequest
from quorumlog.server.kafka.codec.primitives import KafkaMessage, decode, encode
from quorumlog.server.kafka.codec.sasl_requests import SaslAuthenticateRequest, SaslHandshakeRequest
from quorumlog.server.kafka.codec.sasl_responses import SaslAuthenticateResponse, SaslHandshakeResponse
from quorumlog.server.kafka.codec.version_requests import ApiVersionsRequest
from quorumlog.server.kafka.connection import KafkaConnection, KafkaConnectionFault, KafkaConnectionLimits, KafkaRequest
from quorumlog.server.kafka.handlers.dispatch import served_versions
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.server.kafka.handlers.handler import LongWork
from quorumlog.server.kafka.sign_in_state import KafkaSignIn
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.request_context import Listener, RequestContext
from quorumlog.v1 import data_plane_pb2
from quorumlog.v1.sign_in_pb2 import BeginScramRequest, FinishScramRequest
from quorumlog.wire.scram import ClientFinal, ClientFirst, ServerFirst, auth_message, client_proof, salted_keys

LIMITS = KafkaConnectionLimits(strangers_bytes=4_096, sign_in_us=30_000_000)
PASSWORD = b"correct horse"
STREAM = 77


class Connected:
    """A client that is connected to a node with the users alice and bob."""

    def __init__(self, rig: SignInRig | None = None) -> None:
        self.rig = SignInRig() if rig is None else rig
        if rig is None:
            self.rig.set_password("alice", PASSWORD)
            self.rig.set_password("bob", PASSWORD)
        self._numbers = count(1)
        self.asked: list[ProtoMessage] = []
        nonces = count(1)
        self.sign_in = KafkaSignIn(lambda: f"nonce-{next(nonces):016}")
        self.connection = KafkaConnection(
            served_versions(asks_to_sign_in=True), LIMITS, self.rig.time.now, asks_to_sign_in=True
        )
        self.client = KafkaClient(
            self.connection,
            self,
            ImageView(self, 1).seen_by(self),
            False,
            lambda: self.rig.time.now,
            lambda: None,
            self.sign_in,
        )

    @property
    def image(self) -> object:
        return self.rig.image

    @property
    def principal(self) -> str:
        return f"User:{self.sign_in.user}"

    # -- the node behind it -----------------------------------------------------------------------------------------

    def sees_topic(self, principal: str, name: str) -> bool:
        return True

    def has_room(self) -> bool:
        return True

    def ask(self, message: ProtoMessage, client_id: str, on_reply: Callable[[ProtoMessage], None]) -> int:
        self.asked.append(message)
        origin = RequestContext(
            host="10.0.0.7", listener=Listener.KAFKA, token=self.sign_in.token, proved_as=Listener.PASSWORD
        )
        asked = ClientRequest(1, message, client=origin)
        number = next(self._numbers)
        if isinstance(message, BeginScramRequest):
            self.rig.sign_ins.begin(self.rig.time, asked, message)
        elif isinstance(message, FinishScramRequest):
            self.rig.sign_ins.finish(self.rig.time, asked, message)
        else:
            return number
        (reply,) = self.rig.replies.take_gathered()
        self._answers.append((number, reply.message, on_reply))
        return number

    _answers: list[tuple[int, ProtoMessage, Callable[[ProtoMessage], None]]]

    def abandon(self, number: int) -> None:
        pass

    def work(self, wanted: LongWork, on_done: Callable[[object, Exception | None], None]) -> None:
        assert wanted.is_password
        self._works.append((wanted, on_done))

    def count(self, request: KafkaRequest) -> None:
        pass

    # -- the client -------------------------------------------------------------------------------------------------

    def send(self, message: KafkaMessage, version: int) -> bytes:
        """Sends a request; returns what is sent back."""
        self._answers, self._works = [], []
        header = pack_request_header(
            RequestHead(message.API_KEY, version, 9), "test", flexible=version >= message.FLEXIBLE_FROM
        )
        content = b"".join((header, *encode(message, version)))
        self.client.receive(struct.pack(">i", len(content)) + content)
        while self._answers or self._works:
            if self._answers:
                _, reply, on_reply = self._answers.pop(0)
                on_reply(reply)
            else:
                wanted, on_done = self._works.pop(0)
                on_done(wanted.work(), None)
        return b"".join(self.client.take_output())

    def shake(self, mechanism: str) -> SaslHandshakeResponse:
        return self._answer(SaslHandshakeRequest(mechanism), 1, SaslHandshakeResponse)

    def show(self, auth_bytes: bytes, version: int = 2) -> SaslAuthenticateResponse:
        return self._answer(SaslAuthenticateRequest(auth_bytes), version, SaslAuthenticateResponse)

    def _answer(self, message, version, kind):  # type: ignore[no-untyped-def]
        sent = self.send(message, version)
        assert len(sent) >= 4 + struct.unpack_from(">i", sent)[0]
        _, at = unpack_response_header(sent[4:], flexible=version >= kind.FLEXIBLE_FROM)
        return decode(kind, sent[4:], version, at=at)

    def by_plain(self, user: str, password: bytes) -> SaslAuthenticateResponse:
        self.shake("PLAIN")
        return self.show(b"\0" + user.encode() + b"\0" + password)

    def by_scram(self, user: str, password: bytes) -> SaslAuthenticateResponse:
        self.shake("SCRAM-SHA-256")
        first = ClientFirst(user, "client-0123456789abcdef")
        begun = self.show(first.text.encode())
        if begun.error_code:
            return begun
        answer = ServerFirst.of(begun.auth_bytes.decode(), first.nonce)
        final = ClientFinal(answer.nonce, b"")
        keys = salted_keys(password, answer.salt, answer.iterations)
        proof = client_proof(keys, auth_message(first, answer, final))
        return self.show(final._replace(proof=proof).text.encode())

    @property
    def fault(self) -> KafkaConnectionFault | None:
        return None if self.client.end is None else self.client.end.fault


@pytest.fixture
def random() -> Random:
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"random seed {seed}")
    return Random(seed)


SIGN_INS = pytest.mark.parametrize("sign_in", [Connected.by_plain, Connected.by_scram], ids=["PLAIN", "SCRAM"])
SignIn = Callable[[Connected, str, bytes], SaslAuthenticateResponse]


@SIGN_INS
def test_the_right_password_lets_a_client_in_and_says_for_how_long(sign_in: SignIn) -> None:
    one = Connected()
    answer = sign_in(one, "alice", PASSWORD)
    assert answer.error_code == KafkaError.NONE and answer.session_lifetime_ms == 900_000
    assert one.connection.is_trusted
    one.send(MetadataRequest(), 12)
    assert one.fault is None and isinstance(one.asked[-1], data_plane_pb2.MetadataRequest)


@pytest.mark.parametrize(("version", "lifetime_ms"), [(0, 0), (1, 900_000), (2, 900_000)])
def test_lifetimes_are_told_from_version_one(version: int, lifetime_ms: int) -> None:
    """Session lifetimes are reported from version 1 on (KIP-368): version 0 has no field for them."""
    one = Connected()
    one.shake("PLAIN")
    answer = one.show(b"\0alice\0" + PASSWORD, version)
    assert (answer.error_code, answer.session_lifetime_ms) == (KafkaError.NONE, lifetime_ms)


@SIGN_INS
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_a_wrong_password_ends_the_connection_and_is_answered(sign_in: SignIn, user: str) -> None:
    one = Connected()
    answer = sign_in(one, user, b"wrong")
    assert answer.error_code == KafkaError.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "the user name or the password is wrong"
    assert one.fault is KafkaConnectionFault.UNSIGNED and not one.sign_in.token


def test_before_the_sign_in_nothing_else_is_taken() -> None:
    for api in APIS.values():
        one = Connected()
        one.client.receive(struct.pack(">ihhih", 10, api.request.API_KEY, api.request.HIGHEST, 1, -1))
        if api.request in (ApiVersionsRequest, SaslHandshakeRequest, SaslAuthenticateRequest):
            continue
        assert one.fault in (KafkaConnectionFault.UNSIGNED, KafkaConnectionFault.UNSERVED), api.name
        assert one.asked == []
    one = Connected()
    assert one.send(ApiVersionsRequest(), 0) and one.fault is None


def test_a_stranger_is_not_waited_for_and_brings_no_large_request() -> None:
    late, large = Connected(), Connected()
    large.client.receive(struct.pack(">i", LIMITS.strangers_bytes + 1))
    assert large.fault is KafkaConnectionFault.OVERSIZED
    late.rig.time.now += LIMITS.sign_in_us - 1
    late.client.on_time()
    assert late.fault is None
    late.rig.time.now += 1
    late.client.on_time()
    assert late.fault is KafkaConnectionFault.UNSIGNED


@pytest.mark.parametrize("version", [0, 3, 99])
def test_a_stranger_may_ask_a_few_times_and_not_for_ever(version: int) -> None:
    """A client may ask for versions a limited number of times before it authenticates: each request costs the node more
    than the client, and counts towards no quota."""
    client = Connected()
    for _ in range(20):
        assert client.send(ApiVersionsRequest("a", "1"), 3), "it is answered"
    header = pack_request_header(RequestHead(ApiVersionsRequest.API_KEY, version, 9), "test", flexible=version >= 3)
    content = b"".join((header, *encode(ApiVersionsRequest("a", "1"), min(version, 3))))
    client.client.receive(struct.pack(">i", len(content)) + content)
    assert client.client.take_output() == []
    assert client.client.end is not None
    assert client.client.end == (KafkaConnectionFault.UNSIGNED, "more than 20 requests before authentication")


def test_who_has_signed_in_may_ask_as_often_as_it_likes() -> None:
    client = Connected()
    client.by_scram("alice", PASSWORD)
    for _ in range(30):
        assert client.send(ApiVersionsRequest("a", "1"), 3)
    assert client.client.end is None


def test_who_has_signed_in_stays_and_may_send_more() -> None:
    one = Connected()
    one.by_plain("alice", PASSWORD)
    one.rig.time.now += LIMITS.sign_in_us + 1
    one.client.on_time()
    one.client.receive(struct.pack(">i", LIMITS.strangers_bytes + 1))
    assert one.fault is None


def test_an_attempt_that_has_to_wait_is_not_answered() -> None:
    rig = Connected().rig
    for _ in range(4):
        assert Connected(rig).by_plain("alice", b"wrong").error_code
    one = Connected(rig)
    one.shake("PLAIN")
    assert one.send(SaslAuthenticateRequest(b"\0alice\0" + PASSWORD), 2) == b""
    assert one.fault is KafkaConnectionFault.REFUSED


def test_a_client_signs_in_again_as_itself_and_keeps_its_session() -> None:
    one = Connected()
    one.by_plain("alice", PASSWORD)
    before = one.sign_in.token
    assert one.by_scram("alice", PASSWORD).error_code == KafkaError.NONE
    assert one.sign_in.token != before and len(one.rig.sessions) == 1


def test_a_client_stays_who_it_was() -> None:
    one = Connected()
    one.by_plain("alice", PASSWORD)
    assert one.by_plain("bob", PASSWORD).error_code == KafkaError.SASL_AUTHENTICATION_FAILED
    assert one.fault is KafkaConnectionFault.UNSIGNED


def test_a_mechanism_comes_first_and_is_one_that_is_served() -> None:
    one, other = Connected(), Connected()
    assert one.show(b"\0alice\0" + PASSWORD).error_code == KafkaError.ILLEGAL_SASL_STATE
    answer = other.shake("GSSAPI")
    assert (answer.error_code, answer.mechanisms) == (33, ["SCRAM-SHA-256", "PLAIN"])
    assert one.fault is other.fault is KafkaConnectionFault.UNSIGNED


def test_whatever_is_shown_is_refused_and_nothing_else_happens(random: Random) -> None:
    first = ClientFirst("alice", "client-0123456789abcdef").text.encode()
    for number in range(300):
        one = Connected()
        one.shake("SCRAM-SHA-256" if number % 2 else "PLAIN")
        shown = bytearray(first if number % 4 == 1 else b"\0alice\0pass\nword")
        shown[random.randrange(len(shown))] = random.randrange(256)
        answer = one.show(bytes(shown) if number % 3 else random.randbytes(random.randrange(3_000)), number % 3)
        if not answer.error_code:
            answer = one.show(base64.b64encode(random.randbytes(30)))
        assert answer.error_code == KafkaError.SASL_AUTHENTICATION_FAILED
        assert one.fault is KafkaConnectionFault.UNSIGNED


def test_a_session_of_kafkas_ends_with_its_user_and_with_its_connection() -> None:
    one = Connected()
    one.by_plain("alice", PASSWORD)
    admission = one.rig.admission

    def admitted(stream: int) -> ClientRequest:
        origin = RequestContext(listener=Listener.KAFKA, token=one.sign_in.token, proved_as=Listener.PASSWORD)
        asked = ClientRequest(1, data_plane_pb2.MetadataRequest(), stream=stream, client=origin)
        assert admission.admit(one.rig.time.now, asked) is None
        return asked

    assert admitted(STREAM).client.principal == "User:alice"
    admission.stream_closed(STREAM)
    assert len(one.rig.sessions) == 0
    one.by_plain("alice", PASSWORD)
    admitted(STREAM + 1)
    one.rig.delete("alice")
    assert [each.stream for each in one.rig.ended()] == [STREAM + 1]
