"""The controller's decision on a request: an answer, or commands for the metadata log and then an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quorumlog.server.metadata.records import ApplyResult
from quorumlog.v1 import errors_pb2, metadata_log_pb2, peer_pb2


def _first_response(results: Sequence[ApplyResult]) -> peer_pb2.ControllerResponse:
    return results[0].response


@dataclass(slots=True, frozen=True)
class ControllerDecision:
    """The outcome of a request: either ``response`` answers it now, or ``commands`` must be proposed, and once all of
    them have been applied ``answer`` builds the response.

    If one of them is not committed, the request fails as a whole, and indefinitely if any was proposed.

    Arguments:
        merge: builds the response from the results of the commands, in their order.
    """

    request_id: int
    response: peer_pb2.ControllerResponse | None = None
    commands: tuple[metadata_log_pb2.MetadataCommand, ...] = ()
    merge: Callable[[Sequence[ApplyResult]], peer_pb2.ControllerResponse] = _first_response

    def answer(self, results: Sequence[ApplyResult]) -> peer_pb2.ControllerResponse:
        """Returns the response, from the results of ``commands``, in their order."""
        assert len(results) == len(self.commands)
        response = self.merge(results)
        response.request_id = self.request_id
        return response


def answer_now(number: int, response: peer_pb2.ControllerResponse) -> ControllerDecision:
    """Answers request ``number`` without a change."""
    response.request_id = number
    return ControllerDecision(number, response=response)


def refusal(number: int, problem: errors_pb2.Error) -> ControllerDecision:
    """Refuses request ``number`` as a whole."""
    return answer_now(number, peer_pb2.ControllerResponse(error=problem))
