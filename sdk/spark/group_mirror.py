"""A streaming query's progress as a consumer group's committed offsets, so that lag tools show the query.

Only the checkpoint decides where a query continues: nothing reads these offsets back, and a failed commit is logged and
superseded by the next.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

import grpc

from quorumlog.sdk.cluster.request_parts import in_parts
from quorumlog.sdk.errors import (
    CoordinatorNotAvailableError,
    QuorumlogError,
    UnknownMemberIdError,
    error_from_proto,
)
from quorumlog.sdk.failed_calls import error_from_rpc
from quorumlog.sdk.spark.nodes import Nodes, Patience, nodes_at
from quorumlog.sdk.spark.stream_offsets import StreamOffset
from quorumlog.v1 import groups_pb2 as pb
from quorumlog.v1 import groups_pb2_grpc

_log = logging.getLogger("quorumlog.sdk.spark")

#: Time limit of one call. A coordinator that is silent for longer is looked up again.
_TIMEOUT_S = 3.0
#: How long a commit is retried before the next one is awaited.
_PATIENCE_S = 20.0
#: Interval of commits of all offsets, also unchanged ones: an idle partition's offset would expire otherwise.
_AGAIN_S = 600.0

_Places = Mapping[tuple[bytes, int], int]


class GroupMirror:
    """Commits progress in a thread of its own, so that the query never waits for a coordinator. Of several pending
    offsets only the newest is committed.

    Arguments:
        group_id: the group; it must have no members, as a query is not a member.
    """

    def __init__(self, bootstrap_servers: str, group_id: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._group_id = group_id
        self._changed = threading.Condition()
        self._wanted: _Places = {}
        #: The last offsets that were committed or given up.
        self._handled: _Places = {}
        self._gave_up = False
        self._committed: dict[tuple[bytes, int], int] = {}
        self._all_again_s = time.monotonic() + _AGAIN_S
        self._told = ""
        #: The group belongs to consumers. While they pause, a commit would succeed, and move them to the query's
        #: offsets.
        self._over = False
        threading.Thread(target=self._run, name=f"mirror to group {group_id}", daemon=True).start()

    def show(self, offset: StreamOffset) -> None:
        """Sets the query's progress. Returns at once."""
        places = {(offset.topic_ids[topic], number): position for (topic, number), position in offset.positions.items()}
        with self._changed:
            if self._over:
                return
            if time.monotonic() >= self._all_again_s:
                self._all_again_s = time.monotonic() + _AGAIN_S
                self._committed, self._handled = {}, {}
            elif self._gave_up:
                # An idle query shows the same offsets again: tools must not show its lag indefinitely.
                self._gave_up, self._handled = False, {}
            elif places == self._wanted:
                # A commit of the same offsets is in progress, and continues.
                return
            self._wanted = places
            self._changed.notify_all()

    def flush(self, limit_s: float) -> bool:
        """Waits until the last offsets are committed or given up; returns False if ``limit_s`` seconds did not
        suffice."""
        with self._changed:
            return self._changed.wait_for(lambda: self._handled == self._wanted, limit_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._handled != self._wanted)
                wanted = self._wanted
            gave_up = False
            try:
                self._commit(wanted)
            except QuorumlogError as error:
                self._tell_failure(error)
                gave_up = True
                self._over = isinstance(error, UnknownMemberIdError)
            with self._changed:
                self._handled, self._gave_up = wanted, gave_up
                self._changed.notify_all()
                if self._over:
                    return

    def _commit(self, wanted: _Places) -> None:
        """Commits the changes in ``wanted``; stops if newer offsets wait.

        Raises:
            QuorumlogError: it failed permanently, or for too long.
        """
        news = {place: offset for place, offset in wanted.items() if self._committed.get(place) != offset}
        patience = Patience(_PATIENCE_S)
        while news and self._wanted is wanted:
            try:
                commit_offsets(nodes_at(self._bootstrap_servers), self._group_id, news)
            except QuorumlogError as error:
                patience.pause(error)
            else:
                self._committed.update(news)
                self._told = ""
                return

    def _tell_failure(self, error: QuorumlogError) -> None:
        """Logs a lasting failure once."""
        if error.message != self._told:
            self._told = error.message
            advice = "; this run makes no further attempt: set option groupId to a name of its own"
            is_taken = isinstance(error, UnknownMemberIdError)
            _log.warning("progress is not shown in group %r: %s%s", self._group_id, error.message, advice * is_taken)


def commit_offsets(nodes: Nodes, group_id: str, places: Mapping[tuple[bytes, int], int]) -> None:
    """Commits offsets, by topic id and partition, to a group without members. One attempt.

    Raises:
        QuorumlogError: nothing, or only a part, was committed.
    """
    address = _coordinator(nodes, group_id)
    for part in in_parts(places.items()):
        request = pb.CommitOffsetsRequest(group_id=group_id, member_epoch=-1, timeout_ms=int(_TIMEOUT_S * 1000))
        for (topic_id, partition), offset in part:
            request.offsets.add(topic_id=topic_id, partition=partition, offset=offset, leader_epoch=-1)
        _commit(nodes, address, request)


def _commit(nodes: Nodes, address: str, request: pb.CommitOffsetsRequest) -> None:
    try:
        response = groups_pb2_grpc.GroupsStub(nodes.channel(address)).CommitOffsets(request, timeout=_TIMEOUT_S)
    except grpc.RpcError as error:
        raise error_from_rpc(error, address) from None
    if response.HasField("error"):
        raise error_from_proto(response.error)
    failures = [error_from_proto(result.error) for result in response.results if result.HasField("error")]
    if failures:
        raise failures[0]


def _coordinator(nodes: Nodes, group_id: str) -> str:
    """Returns the address of a group's coordinator, from any node."""
    request = pb.FindCoordinatorsRequest(group_ids=[group_id])

    def ask(address: str) -> pb.FindCoordinatorsResponse:
        response: pb.FindCoordinatorsResponse = groups_pb2_grpc.GroupsStub(nodes.channel(address)).FindCoordinators(
            request, timeout=_TIMEOUT_S
        )
        return response

    response = nodes.first_answer(ask)
    if response.HasField("error"):
        raise error_from_proto(response.error)
    (found,) = response.coordinators
    if found.HasField("error"):
        raise error_from_proto(found.error)
    if found.node_id < 0:
        raise CoordinatorNotAvailableError(f"group {group_id!r} has no coordinator at the moment: try again")
    return f"{found.host}:{found.port}"
