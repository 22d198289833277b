"""Three replicas of one Raft group in one process: the core alone, without the node around it."""

from __future__ import annotations

import random

from quorumlog.raft.group import RaftGroup
from quorumlog.raft.options import RaftOptions
from quorumlog.raft.types import (
    ORIGIN,
    Configuration,
    Entry,
    HardState,
    Message,
    RaftLogServices,
    RestoredReplica,
)
from quorumlog.server.hosting.sealing import GroupSealer
from quorumlog.wire.entry import Codec, build_batch

NODES = (1, 2, 3)
LEADER = NODES[0]
_BATCH_BYTES = 1 << 20


class NoStore:
    """A log store that is never read: implements ``LogStore``."""

    def term_at(self, index: int) -> int:
        """Raises: never called."""
        raise AssertionError(f"the term of entry {index} is not in memory")

    def entries(self, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Raises: never called."""
        raise AssertionError(f"entries {first}..{last} are not in memory")


class CoreTrio:
    """A group that node 1 leads; every write is durable immediately."""

    def __init__(self) -> None:
        self._now = 0
        self._sealer = GroupSealer(1)
        self._offset = 0
        self._groups = {
            node: RaftGroup(
                RestoredReplica(
                    node_id=node, group=1, configuration=Configuration(NODES), hard_state=HardState(), last=ORIGIN,
                    first_index=1, anchor=ORIGIN, applied=0,
                ),
                RaftLogServices(NoStore(), self._sealer), RaftOptions(), random.Random(node), now=0,
            )
            for node in NODES
        }  # fmt: skip
        self._leader = self._groups[LEADER]
        self._leader.campaign(0)
        self._settle()
        assert self._leader.leads_committed

    def round(self, payload_bytes: int, entries: int) -> None:
        """Proposes entries, and continues until all three replicas have them durably."""
        batch = build_batch(
            bytes(payload_bytes), record_count=1, codec=Codec.NONE, base_timestamp_ms=0, max_timestamp_ms=0
        )
        self._now += 1_000
        for _ in range(entries):
            self._leader.propose(self._now, self._sealer.batch(batch, self._offset, 0, False))
            self._offset += 1
        self._settle()
        assert self._leader.match_of(len(NODES)) == self._leader.last_id.index

    def _settle(self) -> None:
        """Runs the driver's loop until nothing is pending."""
        messages: list[Message] = []
        while True:
            for group in self._groups.values():
                while group.has_ready():
                    ready = group.take_ready()
                    messages += ready.messages
                    if ready.durable is not None:
                        group.on_durable(self._now, ready.durable)
                    messages += ready.messages_after_durable
            for peer in NODES[1:]:
                request = None
                if self._leader.wants_append(peer, commit_only=False):
                    request = self._leader.next_append(self._now, peer, _BATCH_BYTES)
                if request is not None:
                    messages.append(request)
            if not messages:
                return
            for message in messages:
                self._groups[message.to].step(self._now, message)
            messages = []
