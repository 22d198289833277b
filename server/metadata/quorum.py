"""Wanted voters of the metadata quorum: a part of the metadata image, pure and identical on every node.

The request is kept here, so that every node that becomes leader of the quorum continues with it
(`node/metadata_quorum.py`). The current voters are determined by the configuration of the Raft group alone.
"""

from __future__ import annotations

from collections.abc import Container

from quorumlog.server.metadata.records import ApplyResult
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import admin_pb2, errors_pb2, metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


class WantedQuorum:
    """The voters that the metadata quorum should have.

    Attributes:
        voters: node ids; empty until a client requests others than those that formed the cluster.
        wishes: the number of requests so far.
    """

    def __init__(self, voters: tuple[int, ...] = (), wishes: int = 0) -> None:
        self.voters = voters
        self.wishes = wishes

    def want(self, command: metadata_log_pb2.WantQuorum, registered: Container[int]) -> ApplyResult:
        """Requests other voters: a compare-and-set on the number of requests. The latest request counts.

        Arguments:
            registered: the registered nodes.
        """
        if command.wishes != self.wishes:
            problem = "the metadata quorum is being changed by another request: read it again, then repeat the change"
            return _refused(error(ErrorCode.INVALID_UPDATE_VERSION, problem))
        strangers = [node for node in command.voters if node not in registered]
        if strangers:
            problem = f"node {strangers[0]} is not registered: start it first"
            return _refused(error(ErrorCode.INVALID_REQUEST, problem))
        self.voters = tuple(sorted(command.voters))
        self.wishes += 1
        return ApplyResult(peer_pb2.ControllerResponse(alter_quorum=admin_pb2.AlterQuorumResponse(voters=self.voters)))


def _refused(problem: errors_pb2.Error) -> ApplyResult:
    return ApplyResult(peer_pb2.ControllerResponse(alter_quorum=admin_pb2.AlterQuorumResponse(error=problem)))
