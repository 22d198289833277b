"""Waiting times of clients before they try again."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import cast

from quorumlog.sdk.errors import QuorumlogError, ServerBusyError, error_from_proto
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.sdk.runtime.client_runtime import ClientRuntime
from quorumlog.v1.errors_pb2 import Error, ErrorCode


def wait_after(failure: QuorumlogError, attempt: int = 1) -> float:
    """Seconds until the next attempt."""
    runtime = SimpleNamespace(rng=random.Random(1))
    return Backoff(runtime=cast(ClientRuntime, runtime)).delay_s(attempt, failure)


def test_who_is_over_a_quota_waits_for_as_long_as_the_node_says() -> None:
    error = Error(code=ErrorCode.THROTTLING_QUOTA_EXCEEDED, retriable=True, definite=True, throttle_time_ms=4_000)
    assert 4 < wait_after(error_from_proto(error)) < 4.1
    assert wait_after(ServerBusyError("full")) < 0.1
    assert 0.5 < wait_after(ServerBusyError("full"), attempt=40) < 0.6
    assert 0.5 < wait_after(ServerBusyError("full"), attempt=1_000_000) < 0.6, "a float would overflow"
