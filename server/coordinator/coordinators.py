"""Everything of a node that has to do with consumer groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.broker.replicas import Partitions
from quorumlog.server.coordinator.coordinator import Coordinator
from quorumlog.server.coordinator.finder import CoordinatorFinder
from quorumlog.server.coordinator.group_requests import GroupRequest, GroupRequests
from quorumlog.server.coordinator.led_coordinators import LedCoordinators
from quorumlog.server.coordinator.pending_answers import PendingAnswers
from quorumlog.server.events import ClientRequest
from quorumlog.server.hosting.read_index import HeartbeatRounds
from quorumlog.server.hosting.snapshots import Snapshots
from quorumlog.server.metadata.controller_client import ControllerClient
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.node_service import NodeService, RequestTable, StepTime
from quorumlog.server.options import NodeOptions


class Coordinators(NodeService):
    """The coordinators of a node, and what it serves to members of groups.

    Arguments:
        image: gives the current metadata image.
        rounds: of heartbeats, shared with other reads.
        reply: answers a request.
        touch: a Raft group has something to do.
    """

    def __init__(
        self,
        now: int,
        options: NodeOptions,
        partitions: Partitions,
        image: Callable[[], MetadataImage],
        client: ControllerClient,
        rounds: HeartbeatRounds,
        snapshots: Snapshots,
        reply: Callable[[int, ProtoMessage], None],
        touch: Callable[[int], None],
    ) -> None:
        self._options = options
        self._rounds = rounds
        self._snapshots = snapshots
        self._answers = PendingAnswers(reply)
        self._leaderships = LedCoordinators(now, options, partitions.coordinators, image, rounds, reply, touch)
        self._search = CoordinatorFinder(image, partitions, client, self._answers)
        self._requests = GroupRequests(
            options.node_id, image, partitions, self._leaderships, self._search, rounds, self._answers, reply
        )

    def begin_step(self, now: int, wall_ms: int) -> None:
        """A step of the node begins."""
        self._leaderships.clock.step(now, wall_ms)

    def declare_requests(self, table: RequestTable) -> None:
        for kind in get_args(GroupRequest):
            table.declare(kind, self._serve)

    def _serve(self, time: StepTime, asked: ClientRequest, request: GroupRequest) -> None:
        self._requests.on_request(time.now, asked.request_id, request, asked.client)

    def client_gone(self, request_id: int) -> None:
        """Nobody waits for that answer any more."""
        self._requests.client_gone(request_id)

    def after_round(self, coordinator: Coordinator) -> None:
        """A coordinator's group was stepped."""
        self._leaderships.after_round(coordinator)
        options = self._options.groups
        group = coordinator.group
        due = coordinator.is_checkpoint_due(options.checkpoint_entries, options.checkpoint_bytes)
        if due and self._snapshots.may_checkpoint(group):
            last, configuration = coordinator.last_applied, coordinator.raft.configuration
            self._snapshots.checkpoints.begin(
                group, last, configuration, coordinator.to_snapshot(), coordinator.checkpointed
            )

    def metadata_changed(self) -> None:
        """The metadata image moved on."""
        self._search.on_applied()
        self._leaderships.metadata_changed()

    def raft_group_gone(self, now: int, group: int) -> None:
        """This node has no replica of a coordinator any more."""
        self._leaderships.end(group)
        self._rounds.forget(group)

    def on_time(self, now: int, wall_ms: int) -> None:
        """Does what is due, and decides what has come in this step."""
        self._answers.on_time(now)
        self._leaderships.on_time()

    @property
    def next_deadline(self) -> int | None:
        """When ``on_time`` is due."""
        due = (self._answers.next_deadline, self._leaderships.next_deadline)
        return min((deadline for deadline in due if deadline is not None), default=None)

    def gauges(self) -> dict[str, float]:
        """Figures for metrics, by name."""
        led = list(self._leaderships)
        return {
            "coordinators_led": len(led),
            "consumer_groups": sum(len(each.leadership.table.groups) for each in led),
            "group_members": sum(each.leadership.members for each in led),
            "parked_heartbeats": sum(len(each.heartbeats) for each in led),
        }
