"""Timing of one record: notes of the producer, and the trace from the batch's leader.

All times are microseconds of one clock each: the producer's since ``send`` accepted the record, the leader's since the
request arrived. They are not compared: the time on the network is the difference of two durations, for both directions
together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from quorumlog.sdk.types import RecordMetadata
from quorumlog.v1 import data_plane_pb2

#: Reason if a leader of an older version responded.
NO_TRACE = "the leader sent no trace: its version does not support traces"


@dataclass(slots=True, frozen=True)
class ReplicaTimes:
    """One voting replica.

    Arguments:
        node_id: its node.
        is_leader: it leads the partition.
        is_witness: it votes and stores no records.
        durable_us: when the leader had the confirmation that the record is on that node's disk, in µs since the request
            arrived; None if that came after the response.
        sync_us: duration of the disk write, in µs by that node's own clock; None if not reported.
    """

    node_id: int
    is_leader: bool
    is_witness: bool
    durable_us: int | None
    sync_us: int | None


@dataclass(slots=True, frozen=True)
class LeaderTimes:
    """The leader's notes, in µs since the request arrived.

    Arguments:
        node_id: the leader's.
        appended_us: it appended the batch to its log.
        replicas: the voting replicas, the leader first.
        committed_us: a majority had the batch; None if that came after the response.
        answered_us: the response was sent.
        voters, majority: number of voting replicas, and how many of them commit.
        copies_needed: durable copies that ``acks="all"`` waited for.
        min_insync_replicas: of the topic's configuration.
    """

    node_id: int
    appended_us: int
    replicas: tuple[ReplicaTimes, ...]
    committed_us: int | None
    answered_us: int
    voters: int
    majority: int
    copies_needed: int
    min_insync_replicas: int

    @classmethod
    def of(cls, told: data_plane_pb2.BatchTrace) -> LeaderTimes:
        """Converts a trace."""
        replicas = tuple(
            ReplicaTimes(
                node_id=each.node_id,
                is_leader=each.node_id == told.node_id,
                is_witness=each.witness,
                durable_us=each.durable_us if each.HasField("durable_us") else None,
                sync_us=each.sync_us if each.HasField("sync_us") else None,
            )
            for each in told.replicas
        )
        return cls(
            node_id=told.node_id,
            appended_us=told.appended_us,
            replicas=replicas,
            committed_us=told.committed_us if told.HasField("committed_us") else None,
            answered_us=told.answered_us,
            voters=told.voters,
            majority=told.majority,
            copies_needed=told.copies_needed,
            min_insync_replicas=told.min_insync_replicas,
        )

    def decided_by(self, acks: Literal[1, "all"]) -> int | None:
        """Returns the node whose disk the response waited for last; None if it did not wait for enough disks."""
        if acks == 1:
            own = self.replicas[0]
            return own.node_id if own.durable_us is not None else None
        durable = sorted((each for each in self.replicas if each.durable_us is not None), key=_durable_us)
        copies = [each for each in durable if not each.is_witness]
        if len(durable) < self.majority or len(copies) < self.copies_needed:
            return None
        return max(durable[self.majority - 1], copies[self.copies_needed - 1], key=_durable_us).node_id


def _durable_us(replica: ReplicaTimes) -> int:
    return replica.durable_us or 0


@dataclass(slots=True, frozen=True)
class RecordStage:
    """A stage of a record, on the producer's time line.

    The leader's times are centred in the request's, because the split between the two network directions is unknown. So
    the durations are exact, but their position is not.

    Arguments:
        who: the producer, or a node.
        what: its action.
        begin_us, end_us: since ``send`` accepted the record; no end: the stage was not over by the time of the
            response.
        sync_us: duration of that node's disk write, within the stage; None: not reported, or not applicable.
        decided: the response waited for this stage last.
    """

    who: str
    what: str
    begin_us: int
    end_us: int | None
    sync_us: int | None = None
    decided: bool = False


@dataclass(slots=True, frozen=True)
class RecordExplanation:
    """Timing of one record that was sent alone.

    Arguments:
        metadata: its position in the log.
        acks: what the response waited for.
        attempts: number of requests sent for it; the times are those of the last.
        batched_us: its batch was closed and encoded, in µs since ``send`` accepted the record. Before that a new
            producer waits for its identity.
        sent_us: the request was passed to the connection, in µs since ``send`` accepted the record.
        answered_us: the response was received, in µs since ``send`` accepted the record.
        leader: the leader's notes; None without them.
        untraced: why the leader sent no notes, in one line; empty if it did.
    """

    metadata: RecordMetadata
    acks: Literal[1, "all"]
    attempts: int
    batched_us: int
    sent_us: int
    answered_us: int
    leader: LeaderTimes | None
    untraced: str

    @property
    def on_the_way_us(self) -> int | None:
        """Time of request and response on the network together, in µs; the split is unknown. None without a trace."""
        if self.leader is None:
            return None
        return max(0, self.answered_us - self.sent_us - self.leader.answered_us)

    @property
    def decided_by(self) -> int | None:
        """The node whose disk the response waited for last; None if unknown."""
        return None if self.leader is None else self.leader.decided_by(self.acks)

    @property
    def rule(self) -> str:
        """The condition for the response, in one line."""
        if self.acks == 1:
            return "acks=1: the leader's own disk"
        if self.leader is None:
            return "acks=all: a majority of the replicas, and min.insync.replicas"
        leader = self.leader
        copies = f"{leader.copies_needed} disk" + ("s" if leader.copies_needed != 1 else "")
        return (
            f"acks=all: {leader.majority} of the {leader.voters} that vote have it, and {copies} with records"
            f" (min.insync.replicas={leader.min_insync_replicas})"
        )

    @property
    def stages(self) -> tuple[RecordStage, ...]:
        """The known stages in order."""
        own = (
            RecordStage("producer", "becomes a batch", 0, self.batched_us),
            RecordStage("producer", "request and answer", self.sent_us, self.answered_us),
        )
        return own if self.leader is None else own + tuple(self._leader_stages(self.leader))

    def _leader_stages(self, told: LeaderTimes) -> Iterator[RecordStage]:
        arrived_us = self.sent_us + (self.on_the_way_us or 0) // 2
        appended_us = arrived_us + told.appended_us
        leader, decided_by = f"node {told.node_id}, leader", self.decided_by
        yield RecordStage(leader, "waits for its turn", arrived_us, appended_us)
        for each in told.replicas:
            follower = f"node {each.node_id}, {'witness' if each.is_witness else 'follower'}"
            yield RecordStage(
                leader if each.is_leader else follower,
                "writes it" if each.is_leader else "gets, writes, acknowledges it",
                appended_us,
                None if each.durable_us is None else arrived_us + each.durable_us,
                each.sync_us,
                each.node_id == decided_by,
            )
        enough_us = next((each.durable_us for each in told.replicas if each.node_id == decided_by), None)
        if enough_us is not None:
            yield RecordStage(leader, "answers", arrived_us + enough_us, arrived_us + told.answered_us)


class BatchNotes:
    """Times of a batch that must be explained, in seconds of the producer's clock."""

    __slots__ = ("answered_s", "attempts", "batched_s", "sent_s", "taken_s", "told")

    def __init__(self) -> None:
        self.taken_s = self.batched_s = self.sent_s = self.answered_s = 0.0
        self.attempts = 0
        self.told: data_plane_pb2.BatchTrace | None = None

    def sent(self, now_s: float) -> None:
        """Records that a request with the batch was sent."""
        self.sent_s = now_s
        self.attempts += 1

    def answered(self, now_s: float, response: data_plane_pb2.ProduceResponse) -> None:
        """Records the response to such a request."""
        self.answered_s = now_s
        self.told = response.trace if response.HasField("trace") else None

    def explain(self, metadata: RecordMetadata, wire_acks: int) -> RecordExplanation:
        """Returns the explanation of an acknowledged record.

        Arguments:
            wire_acks: 1 or -1.
        """
        trace = self.told
        untraced = NO_TRACE if trace is None else trace.untraced
        return RecordExplanation(
            metadata=metadata,
            acks=1 if wire_acks == 1 else "all",
            attempts=self.attempts,
            batched_us=self._since_taken_us(self.batched_s),
            sent_us=self._since_taken_us(self.sent_s),
            answered_us=self._since_taken_us(self.answered_s),
            leader=None if trace is None or untraced else LeaderTimes.of(trace),
            untraced=untraced,
        )

    def _since_taken_us(self, at_s: float) -> int:
        return max(0, round((at_s - self.taken_s) * 1_000_000))
