"""A client's session with one node: authenticated once for all callers, renewed in time, started again after a loss."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message as ProtoMessage
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status
from sign_in_rig import SignInRig
from token_issuer import claims, file_of, options, public, token

from quorumlog.sdk.cluster import node_session
from quorumlog.sdk.cluster.node_session import Metadata, NodeSession
from quorumlog.sdk.errors import (
    IllegalArgumentError,
    SaslAuthenticationFailedError,
    SaslSessionExpiredError,
    ServerBusyError,
)
from quorumlog.sdk.runtime.bearer_identity import BearerIdentity
from quorumlog.sdk.runtime.client_runtime import SYSTEM_RUNTIME
from quorumlog.sdk.runtime.passwords import new_password, prepared_password
from quorumlog.sdk.runtime.scram_client import ScramIdentity
from quorumlog.sdk.runtime.security import Identity
from quorumlog.server.access.jwt_verifier import JwtVerifier
from quorumlog.server.access.key_set import parse_keys
from quorumlog.server.config.options import SESSION_LIFETIME_US as LIFETIME_US
from quorumlog.v1 import sign_in_pb2
from quorumlog.v1.errors_pb2 import Error, ErrorCode

PASSWORD = b"right and long"


def refused(error: Error) -> grpc.aio.AioRpcError:
    """An error of a node as gRPC brings it."""
    words = {"retriable": str(error.retriable).lower(), "definite": str(error.definite).lower()}
    info = error_details_pb2.ErrorInfo(reason=ErrorCode.Name(error.code), domain="quorumlog", metadata=words)
    wire = status_pb2.Status(code=code_pb2.UNAUTHENTICATED, message=error.message)
    wire.details.add().Pack(info)
    status = rpc_status.to_status(wire)
    trailing = grpc.aio.Metadata(*(status.trailing_metadata or ()))
    return grpc.aio.AioRpcError(status.code, grpc.aio.Metadata(), trailing, status.details)


class Bench:
    """A client's session with a node that authenticates as real ones do. Time passes when the test says so."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, password: bytes = PASSWORD, identity: Identity | None = None
    ) -> None:
        self.node = SignInRig(verifier=JwtVerifier(parse_keys(file_of(public("first")), ("ES256",)), options()))
        self.node.set_password("alice", PASSWORD)
        self.sign_ins = 0
        self.silent = False
        self._sleeps: asyncio.Queue[tuple[float, asyncio.Future[None]]] = asyncio.Queue()
        runtime = replace(
            SYSTEM_RUNTIME, monotonic_s=lambda: self.node.time.now / 1e6, rng=random.Random(3), run_blocking=_at_once
        )
        channel: Any = _NoChannel()
        self.session = NodeSession(channel, identity or ScramIdentity("alice", password), runtime, "node-1:1")
        self.session._stub = self  # type: ignore[assignment]
        monkeypatch.setattr(node_session.asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleeps.put_nowait((seconds, over))
        await over

    async def sleep_over(self) -> float:
        """Lets the session's sleep pass; returns how long it was."""
        seconds, over = await asyncio.wait_for(self._sleeps.get(), 30)
        self.node.wait(int(seconds * 1e6))
        over.set_result(None)
        return seconds

    async def asleep(self) -> None:
        """Waits until the session sleeps."""
        async with asyncio.timeout(30):
            sleep = await self._sleeps.get()
        self._sleeps.put_nowait(sleep)

    async def BeginScram(self, request: sign_in_pb2.BeginScramRequest, timeout: float) -> ProtoMessage:
        if self.silent:
            raise refused(Error(code=ErrorCode.SERVER_BUSY, message="busy", retriable=True, definite=True))
        self.node.sign_ins.begin(self.node.time, _asked(request), request)
        return self.node._answer(sign_in_pb2.BeginScramResponse)

    async def FinishScram(self, request: sign_in_pb2.FinishScramRequest, timeout: float) -> ProtoMessage:
        self.sign_ins += 1
        self.node.sign_ins.finish(self.node.time, _asked(request), request)
        answer = self.node._answer(sign_in_pb2.FinishScramResponse)
        if answer.HasField("error"):
            raise refused(answer.error)
        return answer

    async def SignInByToken(self, request: sign_in_pb2.SignInByTokenRequest, timeout: float) -> ProtoMessage:
        self.sign_ins += 1
        answer = self.node.show(request.bearer_token, token=request.session_token)
        if answer.HasField("error"):
            raise refused(answer.error)
        return answer

    async def ask(self, metadata: Metadata) -> str:
        """A call of the client: the principal that the node assigns to it."""
        ((_, value),) = metadata
        outcome = self.node.ask(value.removeprefix("Session "))
        if isinstance(outcome, Error):
            raise refused(outcome)
        return outcome


class _NoChannel:
    """A channel of which only stubs are made."""

    def unary_unary(self, *arguments: object, **options: object) -> None:
        return None


async def _at_once(work: Callable[..., Any], *arguments: Any) -> Any:
    return work(*arguments)


def _asked(request: ProtoMessage) -> Any:
    from sign_in_rig import _asked as asked

    return asked(request, "10.0.0.7")


@pytest.mark.asyncio
async def test_all_calls_share_one_sign_in(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    calls: list[Awaitable[str]] = [bench.session.call(bench.ask) for _ in range(5)]
    assert set(await asyncio.gather(*calls)) == {"User:alice"}
    assert bench.sign_ins == 1
    bench.session.close()


@pytest.mark.asyncio
async def test_a_session_is_renewed_before_its_time_and_is_the_same_one(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    ((_, value),) = await bench.session.metadata()
    bench.node.ask(value.removeprefix("Session "), stream=5)
    for turn in range(2, 6):
        assert await bench.sleep_over() == pytest.approx(LIFETIME_US / 1e6 * 2 / 3)
        await bench.asleep()
        assert bench.sign_ins == turn
    assert bench.node.ended() == [], "its streams continue"
    assert len(bench.node.sessions) == 1
    bench.session.close()


@pytest.mark.asyncio
async def test_a_renewal_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    await bench.session.metadata()
    bench.silent = True
    await bench.sleep_over()
    await bench.asleep()
    bench.silent = False
    assert await bench.sleep_over() <= 5
    await bench.asleep()
    assert bench.sign_ins == 2
    assert await bench.session.call(bench.ask) == "User:alice"
    bench.session.close()


@pytest.mark.asyncio
async def test_a_node_that_has_forgotten_the_session_is_signed_in_to_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    assert await bench.session.call(bench.ask) == "User:alice"
    for session in bench.node.sessions:
        bench.node.sessions.end(session)  # As a restart does.
    assert await bench.session.call(bench.ask) == "User:alice"
    assert bench.sign_ins == 2
    bench.session.close()


@pytest.mark.asyncio
async def test_a_node_that_never_knows_the_session_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    over = Error(code=ErrorCode.SASL_SESSION_EXPIRED, message="over", retriable=True, definite=True)

    async def forgetful(metadata: Metadata) -> str:
        raise refused(over)

    with pytest.raises(grpc.aio.AioRpcError):
        await bench.session.call(forgetful)
    assert bench.sign_ins == 3
    bench.session.close()


@pytest.mark.asyncio
async def test_a_wrong_password_is_told_to_everybody_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, password=b"wrong")
    outcomes = await asyncio.gather(*(bench.session.metadata() for _ in range(3)), return_exceptions=True)
    assert {type(each) for each in outcomes} == {SaslAuthenticationFailedError}
    assert bench.sign_ins == 1
    assert bench.session.close() == []


@pytest.mark.asyncio
async def test_a_node_that_does_not_know_the_user_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    original = bench.FinishScram

    async def forged(request: sign_in_pb2.FinishScramRequest, timeout: float) -> ProtoMessage:
        answer: Any = await original(request, timeout)
        answer.server_signature = bytes(32)
        return answer  # type: ignore[no-any-return]

    monkeypatch.setattr(bench, "FinishScram", forged)
    with pytest.raises(SaslAuthenticationFailedError, match="cannot prove that it has the user"):
        await bench.session.metadata()


class Agent:
    """Renews a token, or does not."""

    def __init__(self, lifetime_s: float) -> None:
        self.is_there = True
        self.renew(lifetime_s)

    def renew(self, lifetime_s: float) -> None:
        """From now on there is a token that ends so long after the test started."""
        self._token = token(claims("dora", lifetime_s=lifetime_s))

    def token(self) -> str:
        if not self.is_there:
            raise ConnectionError("canary")
        return self._token


@pytest.mark.asyncio
async def test_a_session_by_token_is_renewed_before_the_token_ends_with_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent(60)
    bench = Bench(monkeypatch, identity=BearerIdentity("file", agent.token))
    assert await bench.session.call(bench.ask) == "User:dora"
    ((_, value),) = await bench.session.metadata()
    bench.node.ask(value.removeprefix("Session "), stream=5)
    agent.renew(600)
    assert await bench.sleep_over() == pytest.approx(40)
    await bench.asleep()
    assert await bench.sleep_over() == pytest.approx(560 * 2 / 3)
    assert await bench.session.call(bench.ask) == "User:dora"
    assert (bench.node.ended(), len(bench.node.sessions)) == ([], 1), "its streams continue"
    bench.session.close()


@pytest.mark.asyncio
async def test_a_token_that_is_renewed_late_is_asked_for_more_often_but_not_ever_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent = Agent(60)
    bench = Bench(monkeypatch, identity=BearerIdentity("file", agent.token))
    await bench.session.metadata()
    slept = [await bench.sleep_over() for _ in range(5)]
    assert slept == pytest.approx([40, 40 / 3, 40 / 9, 40 / 27, 1], rel=0.01)
    with pytest.raises(SaslAuthenticationFailedError, match="has ended"):
        await bench.session.metadata()
    agent.renew(600)
    assert await bench.session.call(bench.ask) == "User:dora"
    bench.session.close()


@pytest.mark.asyncio
async def test_a_session_goes_on_while_its_token_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(60)
    bench = Bench(monkeypatch, identity=BearerIdentity.of_provider(agent, "sasl_oauth_token_provider"))
    ((_, value),) = await bench.session.metadata()
    bench.node.ask(value.removeprefix("Session "), stream=5)
    agent.is_there = False
    assert await bench.sleep_over() == pytest.approx(40)
    assert await bench.sleep_over() <= 5
    await bench.asleep()
    agent.is_there = True
    agent.renew(600)
    assert await bench.sleep_over() <= 5
    await bench.asleep()
    assert (bench.node.ended(), len(bench.node.sessions), bench.sign_ins) == ([], 1, 2)
    bench.session.close()


@pytest.mark.asyncio
async def test_a_token_that_is_none_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(60)
    agent.is_there = False
    bench = Bench(monkeypatch, identity=BearerIdentity.of_provider(agent, "sasl_oauth_token_provider"))
    with pytest.raises(SaslAuthenticationFailedError, match="token_provider failed: ConnectionError") as said:
        await bench.session.metadata()
    assert "canary" not in said.value.message
    assert bench.session.close() == []


def test_errors_of_sessions_say_whether_to_try_again() -> None:
    assert SaslSessionExpiredError("x").retriable
    assert not SaslAuthenticationFailedError("x").retriable
    assert ServerBusyError("x").retriable


@pytest.mark.parametrize(
    ("typed", "same"),
    [("pass\u00adword", "password"), ("Ⅸ", "IX"), ("a\u00a0b", "a b"), ("pässword", "pa\u0308ssword")],
)
def test_a_password_is_the_same_however_it_was_typed(typed: str, same: str) -> None:
    assert prepared_password(typed) == prepared_password(same)


@pytest.mark.parametrize("password", ["ﬁsh", "Ⅸ", "ｐ", "a\u00a0b", "pass\u00adword", "pa\u0308ss", "1ª"])
def test_new_passwords_are_unambiguous(password: str) -> None:
    """A password that Kafka's clients would hash differently is refused for a user."""
    with pytest.raises(IllegalArgumentError, match="some clients normalize"):
        new_password(password)
    assert new_password("größe 注文") == "größe 注文".encode()


@pytest.mark.parametrize("wrong", ["", "a\nb", "\x00", "x" * 1_025, 5, None, b"bytes", "\u0627\u0031"])
def test_what_no_password_can_be_is_refused_without_repeating_it(wrong: Any) -> None:
    with pytest.raises(IllegalArgumentError) as said:
        prepared_password(wrong)
    assert "bytes" not in said.value.message
    assert said.value.message.isprintable()


@pytest.mark.asyncio
async def test_late_rejections_keep_the_newer_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten calls are in progress when their session ends: they authenticate once, whenever each rejection arrives."""
    bench = Bench(monkeypatch)
    old = await bench.session.metadata()
    over = Error(code=ErrorCode.SASL_SESSION_EXPIRED, message="over", retriable=True, definite=True)
    rejections = [asyncio.Event() for _ in range(10)]

    def call(number: int) -> Callable[[Metadata], Awaitable[str]]:
        async def make(metadata: Metadata) -> str:
            if metadata == old:
                await rejections[number].wait()
                raise refused(over)
            return await bench.ask(metadata)

        return make

    calls = [asyncio.ensure_future(bench.session.call(call(number))) for number in range(10)]
    for number, each in enumerate(calls):
        rejections[number].set()
        assert await asyncio.wait_for(each, 30) == "User:alice"
    assert bench.sign_ins == 2
    new = await bench.session.metadata()
    bench.session.forget(old)
    assert await bench.session.metadata() == new != old
    bench.session.close()
