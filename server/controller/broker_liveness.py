"""Which brokers the active controller counts as present: heartbeats in, fencing and unfencing out.

Heartbeats are soft state of one controller: its successor knows none of them and starts by giving everybody the
benefit of one session. What follows from them, fenced or not, is in the metadata log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import BrokerRecord


@dataclass(slots=True)
class _Session:
    """What was heard from one life of a broker."""

    epoch: int
    heard: int
    applied_index: int = 0
    stopping: bool = False
    lost_index: int = 0


class BrokerLiveness:
    """Sessions of brokers, compared with what the image says about them.

    Arguments:
        image: read only.
        now: microseconds on the node's clock.
        session_timeout_us: silence after which a broker counts as gone.
    """

    def __init__(self, image: MetadataImage, now: int, session_timeout_us: int) -> None:
        self._image = image
        self._timeout = session_timeout_us
        self._last_ran = now
        self._sessions: dict[int, _Session] = {}
        self._proposed: dict[tuple[int, int, bool], int] = {}
        self.next_deadline = now
        self._see_registrations(now)
        self._schedule(now)

    def heard(self, now: int, node_id: int, *, applied_index: int, stopping: bool, lost_index: int = 0) -> None:
        """A heartbeat came from a broker's current life.

        Arguments:
            lost_index: of the newest loss of a disk that it will not forget.
        """
        self._notice(now)
        session = self._sessions[node_id]
        session.heard = now
        session.applied_index = applied_index
        session.lost_index = max(session.lost_index, lost_index)
        # Once a process has said that it stops, an earlier heartbeat that arrives late must not bring it back.
        session.stopping = session.stopping or stopping
        self._schedule(now)

    def due(self, now: int) -> tuple[list[BrokerRecord], list[BrokerRecord]]:
        """Brokers to fence and to unfence, as of ``now``.

        Each is named once; again only if a whole session later the image still has not changed, because then the
        command was lost. Both commands are compare-and-set, so that a second one does no harm.
        """
        self._notice(now)
        self._forget_settled(now)
        fence: list[BrokerRecord] = []
        unfence: list[BrokerRecord] = []
        for broker, target in self._mismatches(now):
            key = (broker.node_id, broker.epoch, target)
            if key not in self._proposed:
                self._proposed[key] = now + self._timeout
                (fence if target else unfence).append(broker)
        self._schedule(now)
        return fence, unfence

    def knows_of_loss(self, node_id: int, index: int) -> bool:
        """Whether a broker's current life has said that it will not forget the loss of a disk.

        Arguments:
            index: of the entry that gave it up.
        """
        session = self._sessions.get(node_id)
        return session is not None and session.lost_index >= index

    def _notice(self, now: int) -> None:
        """Takes the clock's new reading.

        Time in which this process itself did not run is nobody's silence: a controller that was suspended would
        otherwise wake up and fence the whole cluster before it has read the heartbeats that wait for it.
        """
        gap = now - self._last_ran
        if gap > self._timeout // 2:
            for session in self._sessions.values():
                session.heard += gap
        self._last_ran = max(self._last_ran, now)
        self._see_registrations(now)

    def _see_registrations(self, now: int) -> None:
        for node_id in self._sessions.keys() - self._image.brokers.keys():
            del self._sessions[node_id]
        for node_id, broker in self._image.brokers.items():
            session = self._sessions.get(node_id)
            if session is None or session.epoch != broker.epoch:
                self._sessions[node_id] = _Session(broker.epoch, now)

    def _mismatches(self, now: int) -> Iterator[tuple[BrokerRecord, bool]]:
        """Brokers whose state in the image is not what was heard, with whether they ought to be fenced."""
        for node_id, broker in self._image.brokers.items():
            session = self._sessions[node_id]
            gone = session.stopping or now - session.heard >= self._timeout
            if gone and not broker.fenced:
                yield broker, True
            elif broker.fenced and not gone and session.applied_index >= broker.epoch:
                # It has applied its own registration, so that it knows in which epoch it lives.
                yield broker, False

    def _forget_settled(self, now: int) -> None:
        for key, expires in list(self._proposed.items()):
            node_id, epoch, target = key
            broker = self._image.brokers.get(node_id)
            if broker is None or broker.epoch != epoch or broker.fenced is target or now >= expires:
                del self._proposed[key]

    def _schedule(self, now: int) -> None:
        """Looks again at the earliest expiry, and often enough to tell a pause of this process from silence."""
        # Heartbeats put the first of these off, again and again: what was proposed and lost has its own.
        deadline = min((now + self._timeout // 6, *self._proposed.values()))
        for broker, target in self._mismatches(now):
            if (broker.node_id, broker.epoch, target) not in self._proposed:
                deadline = now
        for session in self._sessions.values():
            if session.heard + self._timeout > now:
                deadline = min(deadline, session.heard + self._timeout)
        self.next_deadline = deadline
