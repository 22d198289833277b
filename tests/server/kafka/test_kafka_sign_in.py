"""Authentication of Kafka clients: requests accepted before it, its responses, and errors that close the connection."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from itertools import count
from random import Random

import pytest
from google.protobuf.message import Message as ProtoMessage
from sign_in_rig import SignInRig
from token_issuer import claims, file_of, options, public, token

from quorumlog.server.access.jwt_verifier import JwtVerifier
from quorumlog.server.access.key_set import parse_keys
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
from quorumlog.server.kafka.oauthbearer_message import MAX_MESSAGE_BYTES, OauthbearerMessage, OauthbearerMessageError
from quorumlog.server.kafka.sign_in_state import KafkaSignIn
from quorumlog.server.step.bearer_tokens import TokenVerifier
from quorumlog.server.step.events import ClientRequest
from quorumlog.server.step.request_context import Listener, RequestContext
from quorumlog.v1 import data_plane_pb2
from quorumlog.v1.sign_in_pb2 import BeginScramRequest, FinishScramRequest, SignInByTokenRequest
from quorumlog.wire.scram import (
    ClientFinal,
    ClientFirst,
    ScramMechanism,
    ServerFirst,
    auth_message,
    client_proof,
    salted_keys,
)

LIMITS = KafkaConnectionLimits(strangers_bytes=4_096, sign_in_us=30_000_000)
PASSWORD = b"correct horse"
DAY_S = 86_400
STREAM = 77


def verifier() -> JwtVerifier:
    return JwtVerifier(parse_keys(file_of(public("first")), ("ES256",)), options())


class Keys:
    """The file with the keys of an issuer; counts how often it is read and passed on."""

    def __init__(self) -> None:
        self.reads = 0
        self.given: list[object] = []

    def read(self) -> TokenVerifier:
        self.reads += 1
        return verifier()

    def give(self, verifier: TokenVerifier) -> None:
        self.given.append(verifier)


def initial(bearer: str, wanted: str = "", extensions: str = "") -> bytes:
    """Returns the client's message of RFC 7628."""
    name = wanted.replace("=", "=3D").replace(",", "=2C")
    return f"n,{f'a={name}' if name else ''},\x01auth=Bearer {bearer}\x01{extensions}\x01".encode()


class Connected:
    """A client that is connected to a node with the users alice and bob."""

    def __init__(self, rig: SignInRig | None = None, keys: Keys | None = None) -> None:
        self.rig = SignInRig() if rig is None else rig
        if rig is None:
            for user in ("alice", "bob"):
                for mechanism in ScramMechanism:
                    self.rig.set_password(user, PASSWORD, mechanism=mechanism)
        self._numbers = count(1)
        self.asked: list[ProtoMessage] = []
        nonces = count(1)
        self.sign_in = KafkaSignIn(lambda: f"nonce-{next(nonces):016}", keys)
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
        request = ClientRequest(1, message, client=origin)
        number = next(self._numbers)
        if isinstance(message, BeginScramRequest):
            self.rig.sign_ins.begin(self.rig.time, request, message)
        elif isinstance(message, FinishScramRequest):
            self.rig.sign_ins.finish(self.rig.time, request, message)
        elif isinstance(message, SignInByTokenRequest):
            self.rig.token_sign_ins.sign_in(self.rig.time, request, message)
        else:
            return number
        (reply,) = self.rig.replies.take_gathered()
        self._answers.append((number, reply.message, on_reply))
        return number

    _answers: list[tuple[int, ProtoMessage, Callable[[ProtoMessage], None]]]

    def abandon(self, number: int) -> None:
        pass

    def work(self, wanted: LongWork, on_done: Callable[[object, Exception | None], None]) -> None:
        assert wanted.to_sign_in
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

    def by_scram(
        self, user: str, password: bytes, mechanism: ScramMechanism = ScramMechanism.SHA_256
    ) -> SaslAuthenticateResponse:
        self.shake(mechanism.sasl_name)
        first = ClientFirst(user, "client-0123456789abcdef")
        begun = self.show(first.text.encode())
        if begun.error_code:
            return begun
        answer = ServerFirst.of(begun.auth_bytes.decode(), first.nonce)
        final = ClientFinal(answer.nonce, b"")
        keys = salted_keys(mechanism, password, answer.salt, answer.iterations)
        proof = client_proof(keys, auth_message(first, answer, final))
        return self.show(final._replace(proof=proof).text.encode())

    def by_scram_512(self, user: str, password: bytes) -> SaslAuthenticateResponse:
        return self.by_scram(user, password, ScramMechanism.SHA_512)

    def by_token(self, bearer: str, wanted: str = "") -> SaslAuthenticateResponse:
        """Shows a token, and acknowledges its rejection."""
        self.shake("OAUTHBEARER")
        answer = self.show(initial(bearer, wanted))
        if answer.auth_bytes:
            assert not answer.error_code and json.loads(answer.auth_bytes) == {"status": "invalid_token"}
            assert not self.sign_in.failure, "the client is to acknowledge it"
            answer = self.show(b"\x01")
        return answer

    @property
    def fault(self) -> KafkaConnectionFault | None:
        return None if self.client.end is None else self.client.end.fault


SIGN_INS = pytest.mark.parametrize(
    "sign_in", [Connected.by_plain, Connected.by_scram, Connected.by_scram_512], ids=["PLAIN", "SHA-256", "SHA-512"]
)
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
    mechanism = "SCRAM-SHA-512" if sign_in is Connected.by_scram_512 else "SCRAM-SHA-256"
    wrong = f"the user name or the password is wrong, or the user has no password for {mechanism}"
    assert answer.error_message == wrong
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
    without_tokens = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]
    answer = other.shake("GSSAPI")
    assert (answer.error_code, answer.mechanisms) == (33, without_tokens)
    assert one.fault is other.fault is KafkaConnectionFault.UNSIGNED
    answer = Connected().shake("OAUTHBEARER")
    assert (answer.error_code, answer.mechanisms) == (33, without_tokens)
    answer = Connected(keys=Keys()).shake("OAUTHBEARER")
    assert (answer.error_code, answer.mechanisms) == (0, [*without_tokens, "OAUTHBEARER"])


@pytest.mark.parametrize(
    ("first", "second"), [("SHA_256", "SHA_512"), ("SHA_512", "SHA_256"), ("SHA_256", "OAUTHBEARER")]
)
def test_connection_keeps_its_mechanism(first: str, second: str) -> None:
    """A connection reauthenticates with the password, or kind of token, that its session belongs to."""
    one = Connected(keys=Keys())
    assert not one.by_scram("alice", PASSWORD, ScramMechanism[first]).error_code
    answer = one.shake("OAUTHBEARER" if second == "OAUTHBEARER" else ScramMechanism[second].sasl_name)
    assert answer.error_code == KafkaError.ILLEGAL_SASL_STATE
    assert one.fault is KafkaConnectionFault.UNSIGNED and len(one.rig.sessions) == 1


def test_whatever_is_shown_is_refused_and_nothing_else_happens(random: Random) -> None:
    first = ClientFirst("alice", "client-0123456789abcdef").text.encode()
    for number in range(300):
        one = Connected()
        one.shake(random.choice(("SCRAM-SHA-256", "SCRAM-SHA-512")) if number % 2 else "PLAIN")
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
        request = ClientRequest(1, data_plane_pb2.MetadataRequest(), stream=stream, client=origin)
        assert admission.admit(one.rig.time.now, request) is None
        return request

    assert admitted(STREAM).client.principal == "User:alice"
    admission.stream_closed(STREAM)
    assert len(one.rig.sessions) == 0
    one.by_plain("alice", PASSWORD)
    admitted(STREAM + 1)
    one.rig.delete("alice")
    assert [each.stream for each in one.rig.ended()] == [STREAM + 1]


# -- tokens -----------------------------------------------------------------------------------------------------------


def with_tokens(rig: SignInRig | None = None) -> Connected:
    """A client of a node without users, which accepts tokens."""
    return Connected(rig or SignInRig(verifier=verifier()), Keys())


def test_token_lets_a_client_in() -> None:
    """The token's user is the principal, and its end that of the session if it comes first."""
    one, brief = with_tokens(), with_tokens()
    answer = one.by_token(token(claims(lifetime_s=DAY_S)))
    assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (KafkaError.NONE, b"", 900_000)
    assert one.connection.is_trusted and one.principal == "User:alice"
    assert isinstance(one.sign_in.keys, Keys) and one.sign_in.keys.reads == len(one.sign_in.keys.given) == 1
    assert brief.by_token(token(claims(lifetime_s=60)), wanted="alice").session_lifetime_ms == 60_000
    (line,) = brief.rig.audit.take_lines()
    assert (line.event, line.fields["principal"], line.fields["mechanism"]) == (
        "signed_in",
        "User:alice",
        "OAUTHBEARER",
    )


@pytest.mark.parametrize(
    ("bearer", "wanted", "reason"),
    [
        (token(claims(lifetime_s=-1)), "", "it has ended (exp)"),
        (token(claims(aud="others")), "", "it is for another audience (aud)"),
        (token(kid="second"), "", "it is signed with a key that is not in the file"),
        ("canary", "", "it is not a JWT"),
        (token(), "bob", "it is another user's than the requested one (authorization id)"),
        (token(), "User:alice", "it is another user's than the requested one (authorization id)"),
        (token(claims("root")), "", "User:root is a super user (sasl_oauthbearer_shared_users)"),
    ],
)
def test_rejected_token_is_answered_with_a_status(bearer: str, wanted: str, reason: str) -> None:
    """The status comes first, then the error, once the client has acknowledged it; the audit log has the reason."""
    one = with_tokens()
    answer = one.by_token(bearer, wanted)
    assert (answer.error_code, answer.auth_bytes) == (KafkaError.SASL_AUTHENTICATION_FAILED, b"")
    assert answer.error_message == f"the token is not taken: {reason}"
    assert one.fault is KafkaConnectionFault.UNSIGNED
    assert not one.sign_in.token and not one.connection.is_trusted and len(one.rig.sessions) == 0
    (line,) = one.rig.audit.take_lines()
    assert (line.event, line.fields["mechanism"], line.fields["reason"]) == ("sign_in_failed", "OAUTHBEARER", reason)
    assert bearer not in str(line) and bearer not in str(one.client.end)


@pytest.mark.parametrize("then", [b"", b"\x01\x01", b"n,,", initial(token())])
def test_only_an_acknowledgement_follows_a_rejection(then: bytes) -> None:
    """A connection has one attempt, as with passwords."""
    one = with_tokens()
    one.shake("OAUTHBEARER")
    assert one.show(initial("canary")).auth_bytes
    assert one.show(then).error_code == KafkaError.SASL_AUTHENTICATION_FAILED
    assert one.fault is KafkaConnectionFault.UNSIGNED and len(one.rig.sessions) == 0


def test_no_handshake_follows_a_rejection() -> None:
    """Otherwise a client could try further tokens on its connection."""
    one = with_tokens()
    one.shake("OAUTHBEARER")
    assert one.show(initial("canary")).auth_bytes
    assert one.shake("OAUTHBEARER").error_code == KafkaError.ILLEGAL_SASL_STATE
    assert one.fault is KafkaConnectionFault.UNSIGNED


def test_rejected_tokens_have_to_wait() -> None:
    """Wrong tokens delay the next attempts, like wrong passwords; a client that is too early gets no response."""
    rig = SignInRig(verifier=verifier())
    for _ in range(4):
        assert with_tokens(rig).by_token(token(claims(lifetime_s=-1))).error_code
    one = with_tokens(rig)
    one.shake("OAUTHBEARER")
    assert one.send(SaslAuthenticateRequest(initial(token())), 2) == b""
    assert one.fault is KafkaConnectionFault.REFUSED


def test_next_token_renews_the_session() -> None:
    """A connection reauthenticates as the same user, and its session ends with the newest token."""
    one = with_tokens()
    one.by_token(token(claims(lifetime_s=60)))
    before = one.sign_in.token
    answer = one.by_token(token(claims(lifetime_s=120)))
    assert (answer.error_code, answer.session_lifetime_ms) == (KafkaError.NONE, 120_000)
    assert one.sign_in.token != before and len(one.rig.sessions) == 1
    assert one.by_token(token(claims("bob"))).error_code == KafkaError.SASL_AUTHENTICATION_FAILED
    assert one.fault is KafkaConnectionFault.UNSIGNED and one.principal == "User:alice"


def test_connection_ends_with_its_token() -> None:
    """Without another token the connection is closed when the token ends, before the session's usual lifetime."""
    one = with_tokens()
    one.by_token(token(claims(lifetime_s=60)))
    origin = RequestContext(listener=Listener.KAFKA, token=one.sign_in.token, proved_as=Listener.PASSWORD)
    asked = ClientRequest(1, data_plane_pb2.MetadataRequest(), stream=STREAM, client=origin)
    assert one.rig.admission.admit(one.rig.time.now, asked) is None
    one.rig.wait(59_999_999)
    assert one.rig.ended() == []
    one.rig.wait(1)
    assert [each.stream for each in one.rig.ended()] == [STREAM]


def test_another_authorization_id_is_refused_again() -> None:
    """A reauthentication asks for the connection's user, or for none."""
    one = with_tokens()
    one.by_token(token())
    answer = one.by_token(token(claims("bob")), wanted="bob")
    assert "cannot change" in str(answer.error_message)
    assert one.fault is KafkaConnectionFault.UNSIGNED


@pytest.mark.parametrize("wanted", ["größe, O=gmbh", "a=2C", "=3D"])
def test_authorization_ids_are_unescaped(wanted: str) -> None:
    """Commas and equals signs are escaped, as in SCRAM."""
    assert OauthbearerMessage.of(initial("t.o.k", wanted)) == (wanted, "t.o.k")


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=bearer t\x01\x01",
        b"n,,\x01auth=Bearer   t\x01\x01",
        b"n,,\x01host=server.example.com\x01port=143\x01auth=Bearer t\x01traceId=a b\t1\x01\x01",
        b"n,,\x01auth=Bearer t\x01logicalCluster=\x01\x01",
    ],
)
def test_messages_of_clients_are_read(message: bytes) -> None:
    """Extensions have no effect."""
    assert OauthbearerMessage.of(message) == ("", "t")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer t\x01",
        b"n,,\x01auth=Bearer t",
        b"n,,\x01auth=Bearer t\x01\x01\x01",
        b"n,,\x01auth=Bearer t\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Basic t\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearert\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,,\x01Auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer t\x01a1=b\x01\x01",
        b"n,,\x01auth=Bearer t\x01a\x01\x01",
        b"n,,\x01auth=Bearer t\x01a=\x00\x01\x01",
        b"y,,\x01auth=Bearer t\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer t\x01\x01",
        b"n,a=,\x01auth=Bearer t\x01\x01",
        b"n,b=x,\x01auth=Bearer t\x01\x01",
        b"n,a=x=y,\x01auth=Bearer t\x01\x01",
        b"n,a=x,y,\x01auth=Bearer t\x01\x01",
        b"n,a=x\x01auth=Bearer t\x01\x01",
        b"n,,x\x01auth=Bearer t\x01\x01",
        b"n,,\x01auth=Bearer " + b"t" * MAX_MESSAGE_BYTES + b"\x01\x01",
    ],
)
def test_other_messages_are_refused_unquoted(message: bytes) -> None:
    """The problem fits in a line, and quotes nothing of the message, which may contain a token."""
    with pytest.raises(OauthbearerMessageError) as refused:
        OauthbearerMessage.of(message)
    assert str(refused.value).isprintable() and len(str(refused.value)) < 100


def test_mutated_messages_never_fail_otherwise(random: Random) -> None:
    """Whatever a stranger sends is a message, or is refused: no other exception, no session, and no waiting."""
    bearer = token()
    whole = initial(bearer, "alice", "host=server.example.com\x01port=143\x01")
    pieces = (
        b"\x01",
        b"=",
        b",",
        b"n,,",
        b"auth=",
        b"Bearer ",
        b"a=",
        b"=2C",
        b"\0",
        b"\xff",
        b"\xc3",
        b" " * 999,
        bearer.encode(),
    )
    for _ in range(3_000):
        shown = bytearray(whole)
        for _ in range(random.randrange(1, 6)):
            at = random.randrange(len(shown) + 1)
            match random.randrange(4):
                case 0:
                    del shown[at : at + random.randrange(1, 30)]
                case 1:
                    shown[at:at] = random.choice(pieces)
                case 2:
                    shown[at : at + 1] = random.randbytes(1)
                case _:
                    shown[at:] = random.randbytes(random.randrange(40))
        try:
            read = OauthbearerMessage.of(bytes(shown))
        except OauthbearerMessageError:
            continue
        assert read.token and "\x01" not in read.token and f" {read.token}\x01".encode() in shown


def test_whatever_is_shown_as_a_token_is_refused(random: Random) -> None:
    """The same on a connection: one response with an error, and the connection ends."""
    for number in range(150):
        one = with_tokens()
        one.shake("OAUTHBEARER")
        shown = bytearray(initial(token(claims(lifetime_s=-1)), "alice"))
        shown[random.randrange(len(shown))] = random.randrange(256)
        answer = one.show(bytes(shown) if number % 3 else random.randbytes(random.randrange(3_000)), number % 3)
        if answer.auth_bytes:
            answer = one.show(random.choice((b"\x01", random.randbytes(5))))
        assert answer.error_code == KafkaError.SASL_AUTHENTICATION_FAILED
        assert one.fault is KafkaConnectionFault.UNSIGNED and len(one.rig.sessions) == 0


def test_oversized_messages_are_refused() -> None:
    """A token has the same limit as elsewhere, also where larger requests are accepted: after the first sign-in."""
    one = with_tokens()
    one.by_token(token())
    one.shake("OAUTHBEARER")
    answer = one.show(initial("t" * 100_000))
    assert answer.error_code == KafkaError.SASL_AUTHENTICATION_FAILED
    assert f"the maximum is {MAX_MESSAGE_BYTES}" in str(answer.error_message)
