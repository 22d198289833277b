"""Reports refused nodes: each reason once in the log, and at most once a minute in the audit log.

A refused node retries every second, and a stranger may claim any identity. So the number of reports is limited, and so
is the memory for them; omitted reports are counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from quorumlog.server.observability.logging_setup import Log
from quorumlog.server.step.events import AuditLine, PeerIdentity

#: Refused nodes that are remembered, and maximum lengths of their texts: strangers must not exhaust memory.
MAX_REFUSED = 100
MAX_REASON_LENGTH = 500
MAX_ADDRESS_LENGTH = 255
#: Interval at which a reason that persists is repeated in the audit log (s).
AGAIN_S = 60.0
#: Audit lines in a burst; after that, one per second.
LINES_IN_A_ROW = 100


@dataclass(slots=True)
class _Told:
    """The last report about a node.

    Arguments:
        again_s: when it is repeated in the audit log, if it persists.
        untold: number of refusals since.
    """

    reason: str
    again_s: float
    untold: int = 0


class RefusedPeers:
    """Reports refused nodes.

    Arguments:
        audit: receives lines for the audit log.
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
        """Returns the number of nodes remembered."""
        return len(self._told)

    def accepted(self, node_id: int) -> None:
        """Forgets a node's refusal, so that a new one is reported immediately."""
        self._told.pop(node_id, None)

    def refused(self, peer: PeerIdentity, host: str, principal: str, reason: str) -> str:
        """Reports a refused node.

        Arguments:
            peer: its claimed identity.
            host: the address that it comes from.
            principal: from its certificate.

        Returns:
            The reason as reported.
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
        """True if another audit line may be written."""
        self._lines = max(0.0, self._lines - (now - self._counted_s))
        self._counted_s = now
        if self._lines > LINES_IN_A_ROW - 1:
            return False
        self._lines += 1
        return True
