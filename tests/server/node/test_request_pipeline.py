"""The five steps that every request of a client passes, in order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.node.request_pipeline import RequestPipeline
from quorumlog.server.node.resources import StepLog
from quorumlog.server.observability.log_levels import LogLevels
from quorumlog.server.step.events import ClientRequest, LogLine
from quorumlog.server.step.node_service import StepTime
from quorumlog.server.step.request_context import RequestContext
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, data_plane_pb2
from quorumlog.v1.errors_pb2 import Error, ErrorCode

STEPS = ["authenticate", "throttle", "authorize", "audit", "dispatch"]
PROBLEM = error(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "later")


class Pipeline:
    """A pipeline whose steps are recorded. ``ends`` names the step that ends the request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ends: str = "", overdue: Any = None) -> None:
        self.steps: list[str] = []
        self.replies: list[ProtoMessage] = []
        self.lines: list[LogLine] = []
        self._ends = ends
        admission = SimpleNamespace(admit=self._authenticate, refuse_held=self._authenticate)
        access = SimpleNamespace(
            admission=admission, refusals=None, audit=SimpleNamespace(change_begins=lambda _: self._step("audit"))
        )
        replies = SimpleNamespace(reply=lambda _, message: self.replies.append(message))
        current = SimpleNamespace(image=SimpleNamespace(client_quotas=SimpleNamespace(index=0)))
        self.levels = LogLevels()
        log = StepLog(self.levels, self.lines.append, "server.requests")
        self.pipeline = RequestPipeline(cast(Any, access), cast(Any, current), cast(Any, replies), StepTime(0, 0), log)
        self.pipeline.throttle = cast(Any, SimpleNamespace(holds=lambda _: self._step("throttle")))
        self.pipeline.services = cast(
            Any,
            SimpleNamespace(serve=lambda *_: self._step("dispatch"), overdue_handler=lambda _: overdue),
        )
        monkeypatch.setattr("quorumlog.server.node.request_pipeline.refuse_whole", lambda *_: self._refuse("authorize"))

    def _step(self, name: str) -> bool:
        self.steps.append(name)
        return name == self._ends

    def _refuse(self, name: str) -> Error | None:
        return PROBLEM if self._step(name) else None

    def _authenticate(self, *_: object) -> Error | None:
        return self._refuse("authenticate")

    def __call__(self, message: ProtoMessage, stream: int = 0, held_since: int | None = None) -> list[str]:
        """Returns the steps that a request passes."""
        self.pipeline.serve(ClientRequest(1, message, stream), held_since)
        return self.steps


@pytest.mark.parametrize("ends", ["authenticate", "throttle", "authorize", "dispatch"])
def test_each_step_can_end_a_request(monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    pipeline = Pipeline(monkeypatch, ends)
    assert pipeline(admin_pb2.DescribeNodeRequest()) == STEPS[: STEPS.index(ends) + 1]
    assert len(pipeline.replies) == (ends in ("authenticate", "authorize"))


def test_a_held_request_is_authenticated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A held request is authenticated again, because its session may be over, but is not throttled a second time."""
    pipeline = Pipeline(monkeypatch)
    assert pipeline(admin_pb2.DescribeNodeRequest(), held_since=3) == [step for step in STEPS if step != "throttle"]


def test_a_refused_stream_gets_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused stream receives no response: the admission ends it instead."""
    pipeline = Pipeline(monkeypatch, "authenticate")
    pipeline(data_plane_pb2.FetchRequest(), stream=7)
    assert (pipeline.steps, pipeline.replies) == (["authenticate"], [])


def test_an_overdue_request_gets_its_failed_response(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = Pipeline(monkeypatch)
    pipeline.pipeline.refuse_throttled(ClientRequest(1, admin_pb2.DescribeNodeRequest()), PROBLEM)
    assert pipeline.replies == [admin_pb2.DescribeNodeResponse(error=PROBLEM)]


def test_a_service_can_answer_overdue_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Error] = []
    pipeline = Pipeline(monkeypatch, overdue=lambda time, asked, problem: seen.append(problem))
    pipeline.pipeline.refuse_throttled(ClientRequest(1, data_plane_pb2.FetchRequest()), PROBLEM)
    assert (seen, pipeline.replies) == ([PROBLEM], [])


def test_requests_are_logged_for_a_diagnosis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only at the level debug; what a client chose cannot control the operator's terminal."""
    pipeline = Pipeline(monkeypatch)
    pipeline(admin_pb2.DescribeNodeRequest())
    assert pipeline.lines == []
    pipeline.levels.follow({"": "info", "server.requests": "debug"})
    client = RequestContext("app\x1b[2J", "10.0.0.7", "User:alice")
    pipeline.pipeline.serve(ClientRequest(1, admin_pb2.DescribeNodeRequest(), client=client))
    (line,) = pipeline.lines
    assert (line.level, line.event, line.logger) == ("debug", "request", "server.requests")
    assert line.fields == {
        "rpc": "DescribeNode", "principal": "User:alice", "host": "10.0.0.7", "client_id": "'app\\x1b[2J'",
        "size_bytes": 0,
    }  # fmt: skip
