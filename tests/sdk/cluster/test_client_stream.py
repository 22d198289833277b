"""A pipelined stream and what is left when it breaks off, beside a call that the test plays."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import grpc
import grpc.aio
import pytest

from quorumlog.sdk.cluster.connection import ClientStream
from quorumlog.sdk.errors import InvalidRequestError, NetworkError, QuorumlogError, SaslAuthenticationFailedError
from quorumlog.sdk.runtime.tls_files import TlsFiles
from quorumlog.server.step.wire_errors import error as wire_error
from quorumlog.server.transport.rpc_errors import refuse
from quorumlog.v1 import data_plane_pb2, errors_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


class Broken(grpc.RpcError):
    """A stream that breaks."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "broken"


def refused(code: errors_pb2.ErrorCode.ValueType) -> Exception:
    """A stream that a node ends with a definite refusal, as its client gets it."""

    class Context:
        async def abort(self, status: grpc.StatusCode, details: str, trailing: tuple[tuple[str, bytes], ...]) -> None:
            raise grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)

    ending = refuse(Context(), wire_error(code, "no"))  # type: ignore[arg-type]
    try:
        ending.send(None)
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("refusing raises")


class PlayedCall:
    """Replaces gRPC's call: keeps what is written, and reads what the test provides."""

    def __init__(self) -> None:
        self.written: list[data_plane_pb2.FetchRequest] = []
        self.answers: asyncio.Queue[Any] = asyncio.Queue()
        self.cancelled = False
        self.writable = asyncio.Event()
        self.writable.set()
        self.done = False

    async def write(self, request: data_plane_pb2.FetchRequest) -> None:
        await self.writable.wait()
        self.written.append(request)

    async def read(self) -> Any:
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def answer(self, number: int) -> None:
        """Answers the request that was written as the ``number``-th."""
        correlation_id = self.written[number].correlation_id
        self.answers.put_nowait(data_plane_pb2.FetchResponse(correlation_id=correlation_id))

    async def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.OK

    async def details(self) -> str:
        return ""

    async def done_writing(self) -> None:
        self.done = True
        self.answers.put_nowait(grpc.aio.EOF)

    def cancel(self) -> None:
        self.cancelled = True


class Bench:
    """A stream, and the calls that it has opened."""

    def __init__(self, files: TlsFiles | None = None) -> None:
        self.calls: list[PlayedCall] = []
        self.health: list[bool] = []
        ids: Iterator[int] = itertools.count(1)
        self.stream: ClientStream[data_plane_pb2.FetchRequest, data_plane_pb2.FetchResponse] = ClientStream(
            self._open,  # type: ignore[arg-type]
            "127.0.0.1:1",
            self.health.append,
            lambda: next(ids),
            tls_files=files,
        )

    def _open(self) -> PlayedCall:
        self.calls.append(PlayedCall())
        return self.calls[-1]

    def ask(self) -> asyncio.Future[data_plane_pb2.FetchResponse]:
        return self.stream.submit(data_plane_pb2.FetchRequest())


async def turn() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_requests_are_written_in_their_order_and_answers_find_them_in_any() -> None:
    bench = Bench()
    requests = [bench.ask() for _ in range(3)]
    await turn()
    (call,) = bench.calls
    assert [request.correlation_id for request in call.written] == [1, 2, 3]
    for number in (2, 0, 1):
        call.answer(number)
        await turn()
        assert requests[number].result().correlation_id == number + 1
    assert bench.health == [True, True, True]
    bench.stream.end()
    await turn()


async def test_a_request_after_the_stream_has_fallen_silent_is_written_as_well() -> None:
    bench = Bench()
    bench.ask()
    await turn()
    bench.ask()
    await turn()
    assert len(bench.calls) == 1 and len(bench.calls[0].written) == 2
    bench.stream.end()
    await turn()


@pytest.mark.parametrize("how", ["broken", "ended"])
async def test_a_stream_that_breaks_fails_what_was_unanswered_and_the_next_request_opens_another(how: str) -> None:
    bench = Bench()
    requests = [bench.ask(), bench.ask()]
    posted = bench.stream.post(data_plane_pb2.FetchRequest())
    bench_life = bench.stream.open()
    await turn()
    bench.calls[0].answer(0)
    await turn()
    bench.calls[0].answers.put_nowait(Broken() if how == "broken" else grpc.aio.EOF)
    await turn()
    assert requests[0].result() and isinstance(requests[1].exception(), NetworkError) and posted.done()
    error = requests[1].exception()
    assert isinstance(error, NetworkError) and not error.definite, "the node may have carried it out"
    assert bench.calls[0].cancelled, "what gRPC keeps of it is given back"
    assert bench.health[-1] is False
    again = bench.ask()
    await turn()
    assert len(bench.calls) == 2 and bench.stream.open() == bench_life + 1
    bench.calls[1].answer(0)
    await turn()
    assert again.result()
    bench.stream.end()
    await turn()


async def test_streams_that_break_off_again_and_again_leave_nothing_behind() -> None:
    bench = Bench()
    before = asyncio.all_tasks()
    for _ in range(50):
        request = bench.ask()
        await turn()
        bench.calls[-1].answers.put_nowait(Broken())
        await turn()
        assert request.exception() is not None
    assert asyncio.all_tasks() == before, "its writer has ended too"
    assert all(call.cancelled for call in bench.calls) and len(bench.calls) == 50
    assert not bench.stream._answers and not bench.stream._written and not bench.stream._outgoing


async def test_what_was_not_written_when_the_stream_broke_is_not_written_to_the_next_one() -> None:
    bench = Bench()
    requests = [bench.ask() for _ in range(2)]
    await asyncio.sleep(0)
    for _ in range(3):
        await asyncio.sleep(0)
    bench.calls[0].writable.clear()
    late = [bench.ask(), bench.ask()]  # One is being written, and one waits behind it.
    await turn()
    bench.calls[0].answers.put_nowait(Broken())
    await turn()
    assert all(isinstance(one.exception(), NetworkError) for one in (*requests, *late))
    fresh = bench.ask()
    await turn()
    assert [request.correlation_id for request in bench.calls[1].written] == [5]
    bench.calls[1].answer(0)
    await turn()
    assert fresh.result()
    bench.stream.end()
    await turn()


@pytest.mark.parametrize("code", [ErrorCode.INVALID_REQUEST, ErrorCode.SERVER_BUSY])
async def test_a_refusal_of_one_of_several_requests_is_definite_for_none_that_was_written(
    code: errors_pb2.ErrorCode.ValueType,
) -> None:
    bench = Bench()
    requests = [bench.ask() for _ in range(2)]
    await turn()
    bench.calls[0].writable.clear()
    requests.append(bench.ask())  # It is being written: gRPC has it.
    await turn()
    never_written = bench.ask()
    await turn()
    bench.calls[0].answers.put_nowait(refused(code))
    await turn()
    for one in requests:
        error = one.exception()
        assert isinstance(error, QuorumlogError) and error.message.startswith("no (node 127.0.0.1:1)")
        assert not error.definite, "the node may have carried it out, and have refused another one"
    error = never_written.exception()
    assert isinstance(error, QuorumlogError)
    assert error.definite and error.retriable, "what is wrong with another request says nothing of this one"


async def test_a_refusal_of_the_only_request_under_way_is_as_definite_as_the_node_says() -> None:
    bench = Bench()
    answered, request = bench.ask(), bench.ask()
    await turn()
    bench.calls[0].answer(0)
    bench.calls[0].answers.put_nowait(refused(ErrorCode.INVALID_REQUEST))
    await turn()
    assert answered.result()
    error = request.exception()
    assert isinstance(error, InvalidRequestError) and error.definite and not error.retriable


async def test_a_refusal_after_a_post_may_be_of_that() -> None:
    bench = Bench()
    bench.stream.post(data_plane_pb2.FetchRequest())
    request = bench.ask()
    await turn()
    bench.calls[0].answers.put_nowait(refused(ErrorCode.INVALID_REQUEST))
    await turn()
    error = request.exception()
    assert isinstance(error, InvalidRequestError) and not error.definite


async def test_an_answer_to_nobody_is_left_alone() -> None:
    bench = Bench()
    request = bench.ask()
    given_up = bench.ask()
    await turn()
    given_up.cancel()
    bench.calls[0].answers.put_nowait(data_plane_pb2.FetchResponse(correlation_id=99))
    bench.calls[0].answer(1)
    bench.calls[0].answer(0)
    await turn()
    assert request.result()
    bench.stream.end()
    await turn()


async def test_what_is_posted_is_done_when_it_is_written_and_not_before() -> None:
    bench = Bench()
    bench.stream.open()
    await turn()
    bench.calls[0].writable.clear()
    posted = bench.stream.post(data_plane_pb2.FetchRequest())
    await turn()
    assert not posted.done()
    bench.calls[0].writable.set()
    await turn()
    assert posted.done() and posted.exception() is None
    bench.stream.end()
    await turn()


async def test_who_closes_ends_a_stream_with_posts_and_waits_until_the_node_has_read_them() -> None:
    bench = Bench()
    await bench.stream.drain()
    bench.stream.post(data_plane_pb2.FetchRequest())
    await turn()
    await bench.stream.drain()
    assert bench.calls[0].done and len(bench.calls[0].written) == 1
    request = bench.ask()
    await turn()
    await bench.stream.drain()
    assert not bench.calls[1].done, "there is nothing that would be thrown away unseen"
    bench.stream.end()
    await turn()
    assert isinstance(request.exception(), NetworkError)


async def test_an_end_before_the_stream_has_begun_fails_what_was_asked_too() -> None:
    bench = Bench()
    request = bench.ask()
    (ending,) = bench.stream.end()
    await asyncio.wait([ending], timeout=1)
    assert isinstance(request.exception(), NetworkError)
    assert not bench.stream.end() or bench.calls == []


class PlayedFiles(TlsFiles):
    """Files of which the test says when they change."""

    def __init__(self) -> None:
        super().__init__(None, None, None)
        self.state = 1

    def look(self, *, at_once: bool = False) -> int:
        return self.state


async def test_a_stream_of_former_files_is_left_once_nothing_is_awaited() -> None:
    files = PlayedFiles()
    bench = Bench(files)
    first, life = bench.ask(), bench.stream.life
    await turn()
    files.state = 2
    second = bench.ask()
    await turn()
    assert len(bench.calls) == 1, "an answer was awaited"
    for number in (0, 1):
        bench.calls[0].answer(number)
    await turn()
    assert first.done() and second.done()
    third = bench.ask()
    await turn()
    former, present = bench.calls
    assert former.done, "the node reads what was sent and ends it"
    assert len(former.written) == 2 and len(present.written) == 1
    assert bench.stream.life == life + 1, "what was bound to the former one is gone"
    present.answer(0)
    await turn()
    assert third.done()
    assert all(bench.health), "nothing was lost"
    fourth = bench.ask()
    await turn()
    assert len(bench.calls) == 2 and len(present.written) == 2
    bench.stream.end()
    await turn()
    assert isinstance(fourth.exception(), NetworkError)


async def test_what_was_posted_is_not_thrown_away_with_the_stream_that_is_left() -> None:
    files = PlayedFiles()
    bench = Bench(files)
    posted = bench.stream.post(data_plane_pb2.FetchRequest())
    await turn()
    assert posted.done()
    files.state = 2
    request = bench.ask()
    await turn()
    former, present = bench.calls
    assert former.done and former.written, "it is ended, and not cancelled: the node reads it first"
    assert len(present.written) == 1
    present.answer(0)
    await turn()
    assert request.done()
    bench.stream.end()
    await turn()


@pytest.mark.parametrize("replaced", [True, False])
async def test_a_refused_certificate_is_the_last_word_only_where_it_is_the_newest(replaced: bool) -> None:
    files = PlayedFiles()
    bench = Bench(files)
    request = bench.ask()
    await turn()
    files.state = 2 if replaced else 1
    bench.calls[0].answers.put_nowait(refused(ErrorCode.SASL_AUTHENTICATION_FAILED))
    await turn()
    error = request.exception()
    assert isinstance(error, NetworkError if replaced else SaslAuthenticationFailedError)
    assert error.retriable == replaced
    again = bench.ask()
    await turn()
    assert len(bench.calls) == 2
    bench.calls[1].answer(0)
    await turn()
    assert again.done()
    bench.stream.end()
    await turn()
