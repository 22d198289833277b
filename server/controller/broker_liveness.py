"""Liveness of brokers on the active controller: heartbeats in, fencing and unfencing out.

Heartbeats are soft state of one controller: its successor has none of them and starts by giving every broker one
session. The result, fenced or not, is in the metadata log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.metadata.records import BrokerRecord


@dataclass(slots=True)
class _Session:
    """The heartbeats of one broker epoch."""

    epoch: int
    heard: int
    applied_index: int = 0
    stopping: bool = False
    lost_index: int = 0


class BrokerLiveness:
    """Sessions of brokers, compared with the image.

    Arguments:
        image: read only.
        now: microseconds on the node's clock.
        session_timeout_us: time without a heartbeat after which a broker counts as down.
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
        """Records a heartbeat of a broker's current epoch.

        Arguments:
            lost_index: index of the newest loss of a disk that it has stored durably.
        """
        self._notice(now)
        session = self._sessions[node_id]
        session.heard = now
        session.applied_index = applied_index
        session.lost_index = max(session.lost_index, lost_index)
        # Once a process has announced its stop, an earlier heartbeat that arrives late must not unfence it.
        session.stopping = session.stopping or stopping
        self._schedule(now)

    def due(self, now: int) -> tuple[list[BrokerRecord], list[BrokerRecord]]:
        """Returns the brokers to fence and to unfence, as of ``now``.

        Each is returned once; again only if a whole session later the image still has not changed, because then the
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
        """True if a broker's current epoch has confirmed that the loss of a disk is stored durably.

        Arguments:
            index: index of the entry that gave it up.
        """
        session = self._sessions.get(node_id)
        return session is not None and session.lost_index >= index

    def _notice(self, now: int) -> None:
        """Follows the clock.

        Time in which this process itself did not run does not count as silence: a controller that was suspended would
        otherwise resume and fence the whole cluster before it has read the queued heartbeats.
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
        """Yields brokers whose state in the image differs from the heartbeats, with True if they must be fenced."""
        for node_id, broker in self._image.brokers.items():
            session = self._sessions[node_id]
            gone = session.stopping or now - session.heard >= self._timeout
            if gone and not broker.fenced:
                yield broker, True
            elif broker.fenced and not gone and session.applied_index >= broker.epoch:
                # It has applied its own registration, so it has its epoch.
                yield broker, False

    def _forget_settled(self, now: int) -> None:
        for key, expires in list(self._proposed.items()):
            node_id, epoch, target = key
            broker = self._image.brokers.get(node_id)
            if broker is None or broker.epoch != epoch or broker.fenced is target or now >= expires:
                del self._proposed[key]

    def _schedule(self, now: int) -> None:
        """Schedules the next check at the earliest expiry, and often enough to distinguish a pause of this process from
        silence."""
        # Heartbeats postpone the session deadlines again and again, so lost proposals have deadlines of their own.
        deadline = min((now + self._timeout // 6, *self._proposed.values()))
        for broker, target in self._mismatches(now):
            if (broker.node_id, broker.epoch, target) not in self._proposed:
                deadline = now
        for session in self._sessions.values():
            if session.heard + self._timeout > now:
                deadline = min(deadline, session.heard + self._timeout)
        self.next_deadline = deadline
