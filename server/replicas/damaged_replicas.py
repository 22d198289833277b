"""Replicas that were found damaged when the node started, otherwise than in entries that can be mended.

Such a replica is set aside: it takes no part, neither votes nor acknowledges, and what is on disk of it stays there.
Once its partition is led without it, by a leader that has all it can have helped to commit, and a majority of the other
replicas is there, it is given up and begins anew with nothing. That the metadata name such a leader is not enough: its
replica may be damaged, too, and set aside a moment ago. The leader itself has to have spoken just now.

What the replica gets of its leader makes it whole again. It has no say before it knows that everything is committed
that it has ever acknowledged (see ``ReplicaTombstones``): otherwise its vote could elect a leader without that.

One whose partition is deleted, or was moved away, ends here too: of damaged pages the engine frees what their own
headers say, and that may be others'. So nothing of it is given back before its pages were looked at.
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

#: How often to look whether one can begin anew.
LOOK_EVERY_US = 500_000
#: A leader that spoke to one within this time leads.
LEADS_US = 2 * LOOK_EVERY_US
#: Its jobs have the numbers below this one.
_JOBS_BELOW = -(1 << 40)


class DamagedReplicas:
    """The replicas that are set aside.

    Arguments:
        send: takes a Raft group and a message to a replica of it.
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
        #: When a leader of a term that is late enough spoke last, by Raft group.
        self._led_at: dict[int, int] = {}

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        hooks.deadline(self)

    def say(self, now: int) -> None:
        """Tells of each that it is set aside, and why."""
        for group, aside in self._replicas.set_aside.items():
            waits_for = self._why_wait(now, group, aside)
            self._log("error", "replica_set_aside", group=group, reason=aside.reason, waits_for=waits_for)

    def hear(self, now: int, group: int, message: Message) -> None:
        """Takes a leader's word, and tells one of an older term the one that a replica has seen, as that would itself.

        It may have died as a candidate, and nobody else knows of that term. Then the others' leader would go on in its
        own, and the replica would wait for ever for one of whom it is known that it has everything.
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
        """When ``on_time`` is due."""
        return self._due if self._replicas.set_aside and self._checking is None else None

    def on_time(self, now: int, wall_ms: int) -> None:
        """Looks which of them can begin anew; one at a time."""
        if now < self._due or self._checking is not None:
            return
        self._due = now + LOOK_EVERY_US
        for group, aside in self._replicas.set_aside.items():
            if group in self._replicas.leaving_aside or not self._why_wait(now, group, aside):
                self._checking = group
                self._start_job(Job(_JOBS_BELOW - group, partial(self._storage.pass_replica, group)))
                return

    def on_done(self, now: int, event: JobDone) -> None:
        """The pages of one have been looked at.

        Raises:
            DamageError: the engine could not give them back without harm to others.
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
        """Ends one that does not belong here any more."""
        if error is not None:
            # It stays on disk, of which it takes room and nothing else.
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
        """Why one cannot begin anew now; empty when it can. Nothing is deleted on doubt."""
        record, own = self._metadata.image.partitions.get(group), self._node_id
        if record is None or own not in record.hosts:
            return "the metadata to say that it belongs here"
        if aside.term is None:
            return "its partition to be moved away from this node: nobody knows in which terms it has voted"
        leader = self._metadata.image.available_leader(record)
        if leader in (NO_NODE, own) or record.leader_epoch < aside.term:
            return f"another node to lead {record.name} in term {aside.term} or later"
        if record.witness_hosts:
            # A leader whose own disk is late may have committed with this disk and the witness's word alone.
            return f"{record.name} to be moved away from this node: what it has may be on no other disk"
        # While it is being moved, each half decides; and the move may be waiting for this very replica.
        for half in (record.replicas, record.wanted):
            others = [node for node in half if node != own and not self._metadata.image.is_fenced(node)]
            # A half that is this node alone has nobody to wait for: what there is, the leader has.
            if len(others) <= len(half) // 2 and set(half) != {own}:
                return f"more replicas of {record.name} to be there, without which it cannot be led"
        led_at = self._led_at.get(group)
        if led_at is None or now - led_at > LEADS_US:
            return f"the leader of {record.name} to say that it still leads"
        return ""
