"""What is told of nodes that were refused: each reason once in the log, and in the audit log once in a minute.

A node that is refused tries again every second, and a stranger may call itself anything. So what is told of both is
bounded, as is what is remembered; what was not told is counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from quorumlog.server.observability.logging_setup import Log
from quorumlog.server.step.events import AuditLine, PeerIdentity

#: Refused nodes of which is remembered what was said, and characters of that: what strangers call themselves takes no
#: more memory.
MAX_REFUSED = 100
MAX_REASON_LENGTH = 500
MAX_ADDRESS_LENGTH = 255
#: What goes on is told again in the audit log after so long (s).
AGAIN_S = 60.0
#: Lines that are told in a row; from then on one in a second.
LINES_IN_A_ROW = 100


@dataclass(slots=True)
class _Told:
    """What was said of a node.

    Arguments:
        again_s: when it is said in the audit log again, if it goes on.
        untold: how often it was refused since.
    """

    reason: str
    again_s: float
    untold: int = 0


class RefusedPeers:
    """Tells of refused nodes.

    Arguments:
        audit: takes lines for the audit log.
        clock: in seconds.
    """

    def __init__(
        self, log: Log, audit: Callable[[AuditLine], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = log
        self._audit = audit
        self._clock = clock
        self._told: dict[int, _Told] = {}
        self._lines, self._counted_s = 0.0, clock()
        self._left_out = 0

    def __len__(self) -> int:
        """How many nodes are remembered."""
        return len(self._told)

    def accepted(self, node_id: int) -> None:
        """A node is welcome: should it be refused again, that is news."""
        self._told.pop(node_id, None)

    def refused(self, peer: PeerIdentity, host: str, principal: str, reason: str) -> str:
        """A node is refused.

        Arguments:
            peer: who it says it is.
            host: the address that it comes from.
            principal: who it is by its certificate.

        Returns:
            The reason as it is said.
        """
        now, reason = self._clock(), reason[:MAX_REASON_LENGTH]
        known = self._told.get(peer.node_id)
        is_news = known is None or known.reason != reason
        if known is not None and not is_news and now < known.again_s:
            known.untold += 1
            return reason
        times = 1 if known is None or is_news else known.untold + 1
        self._told[peer.node_id] = _Told(reason, now + AGAIN_S)
        if len(self._told) > MAX_REFUSED:
            del self._told[next(iter(self._told))]
        if not self._has_room(now):
            self._left_out += times
            return reason
        left_out, self._left_out = self._left_out, 0
        more: dict[str, object] = {"others_before": left_out} if left_out else {}
        if is_news:
            address = peer.address[:MAX_ADDRESS_LENGTH]
            self._log.info("peer_refused", peer=peer.node_id, address=address, reason=reason, **more)
        fields: dict[str, object] = {"principal": principal, "host": host, "peer": peer.node_id, "reason": reason}
        self._audit(AuditLine("peer_refused", time.time_ns() // 1_000_000, {**fields, "times": times, **more}))
        return reason

    def _has_room(self, now: float) -> bool:
        """Whether another line is told."""
        self._lines = max(0.0, self._lines - (now - self._counted_s))
        self._counted_s = now
        if self._lines > LINES_IN_A_ROW - 1:
            return False
        self._lines += 1
        return True
