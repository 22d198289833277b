"""Replicas that were found damaged when the node started, other than in entries that can be repaired.

Such a replica is set aside: it neither votes nor acknowledges, and its data stays on disk. Once its partition is led
without it, by a leader that has everything it may have helped to commit, and a majority of the other replicas is up, it
is given up and starts again, empty. A leader's name in the metadata is not enough: its replica may be damaged, too, and
have been set aside a moment ago. The leader itself must have sent a message recently.

The replica then gets everything from its leader again. It has no vote before it has learned that everything is
committed that it has ever acknowledged (see ``ReplicaTombstones``): otherwise its vote could elect a leader without
that.

A damaged replica whose partition is deleted, or was moved away, is removed here too: of damaged pages the engine frees
what their own headers name, which may belong to others. So none of its pages are freed before they were checked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from quorumlog.raft.types import NO_NODE, AppendRequest, AppendResponse, Heartbeat, InstallSnapshot, Message
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.replicas.replica_tombstones import ReplicaTombstones
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.step.events import EventLog, Job, JobDone
from quorumlog.server.step.node_service import ServiceHooks
from quorumlog.storage.interface import SetAside, StorageReader

#: Interval between checks whether one can start again.
LOOK_EVERY_US = 500_000
#: A leader that sent a message within this time counts as leading.
LEADS_US = 2 * LOOK_EVERY_US
#: The numbers of its jobs are below this one.
_JOBS_BELOW = -(1 << 40)


class DamagedReplicas:
    """The replicas that are set aside.

    Arguments:
        send: sends a message to a replica of a Raft group.
    """

    def __init__(
        self,
        node_id: int,
        host: RaftHost,
        replicas: Replicas,
        former: ReplicaTombstones,
        metadata: CurrentImage,
        storage: StorageReader,
        start_job: Callable[[Job], None],
        send: Callable[[int, Message], None],
        log: EventLog,
    ) -> None:
        self._node_id = node_id
        self._host = host
        self._replicas = replicas
        self._former = former
        self._metadata = metadata
        self._storage = storage
        self._start_job = start_job
        self._send = send
        self._log = log
        self._due = 0
        self._checking: int | None = None
        #: Time of the last message of a leader of a sufficiently late term, by Raft group.
        self._led_at: dict[int, int] = {}

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        hooks.deadline(self)

    def say(self, now: int) -> None:
        """Logs each replica that is set aside, with the reason."""
        for group, aside in self._replicas.set_aside.items():
            waits_for = self._why_wait(now, group, aside)
            self._log("error", "replica_set_aside", group=group, reason=aside.reason, waits_for=waits_for)

    def hear(self, now: int, group: int, message: Message) -> None:
        """Records a leader's message, and answers one of an older term with the replica's term, as the replica itself
        would.

        The replica may have failed as a candidate, in a term that no other node has seen. Without the answer the
        others' leader would continue in its own term, and the replica would wait permanently for a leader that
        certainly has everything.
        """
        aside = self._replicas.set_aside.get(group)
        if aside is None or aside.term is None or not isinstance(message, (AppendRequest, Heartbeat, InstallSnapshot)):
            return
        if message.term >= aside.term:
            self._led_at[group] = now
        else:
            self._send(group, AppendResponse(self._node_id, message.sender, aside.term, 0, True))

    @property
    def next_deadline(self) -> int | None:
        """Time at which ``on_time`` is due."""
        return self._due if self._replicas.set_aside and self._checking is None else None

    def on_time(self, now: int, wall_ms: int) -> None:
        """Checks which of them can start again; one at a time."""
        if now < self._due or self._checking is not None:
            return
        self._due = now + LOOK_EVERY_US
        for group, aside in self._replicas.set_aside.items():
            if group in self._replicas.leaving_aside or not self._why_wait(now, group, aside):
                self._checking = group
                self._start_job(Job(_JOBS_BELOW - group, partial(self._storage.pass_replica, group)))
                return

    def on_done(self, now: int, event: JobDone) -> None:
        """Handles the end of a check of pages.

        Raises:
            DamageError: the engine could not free them without damage to others.
        """
        group = self._checking
        if group is None or event.number != _JOBS_BELOW - group:
            return
        self._checking = None
        aside = self._replicas.set_aside.get(group)
        if aside is not None and group in self._replicas.leaving_aside:
            self._end(now, group, aside, event.error)
            return
        if aside is None or aside.term is None or self._why_wait(now, group, aside):
            return
        if event.error is not None:
            raise event.error
        self._former.lost(group, aside.term, aside.last_index)
        self._replicas.remove(group)
        self._host.destroy(group, decided_by=METADATA_GROUP)
        self._log("warning", "replica_begins_anew", group=group, last_index=aside.last_index)
        self._replicas.ensure(now, group)

    def _end(self, now: int, group: int, aside: SetAside, error: Exception | None) -> None:
        """Removes a replica that no longer belongs here."""
        if error is not None:
            # It stays on disk, where it takes up space and has no other effect.
            self._replicas.leaving_aside.discard(group)
            self._log("error", "damaged_replica_kept", group=group, reason=str(error))
            return
        if not self._replicas.was_deleted(group):
            self._former.ended(group, aside.term or 0)
        self._replicas.remove(group)
        self._host.destroy(group, decided_by=METADATA_GROUP)
        self._log("info", "damaged_replica_ended", group=group)
        self._replicas.ensure(now, group)

    def _why_wait(self, now: int, group: int, aside: SetAside) -> str:
        """Returns what a replica waits for before it can start again; empty if it can. In doubt nothing is deleted."""
        record, own = self._metadata.image.partitions.get(group), self._node_id
        if record is None or own not in record.hosts:
            return "the metadata to list this node as a host of it"
        if aside.term is None:
            return "its partition to be moved away from this node: the terms in which it has voted are unknown"
        leader = self._metadata.image.available_leader(record)
        if leader in (NO_NODE, own) or record.leader_epoch < aside.term:
            return f"another node to lead {record.name} in term {aside.term} or later"
        if record.witness_hosts:
            # A leader whose own disk is late may have committed with this disk and the witness's vote alone.
            return f"{record.name} to be moved away from this node: its records may be on no other disk"
        # During a reassignment, each half decides; and the reassignment may be waiting for this very replica.
        for half in (record.replicas, record.wanted):
            others = [node for node in half if node != own and not self._metadata.image.is_fenced(node)]
            # A half that is this node alone has no other node to wait for: the leader has everything.
            if len(others) <= len(half) // 2 and set(half) != {own}:
                return f"more replicas of {record.name} to be up, without which it cannot be led"
        led_at = self._led_at.get(group)
        if led_at is None or now - led_at > LEADS_US:
            return f"the leader of {record.name} to confirm that it still leads"
        return ""
