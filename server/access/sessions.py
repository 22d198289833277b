"""Sessions of clients authenticated at this node. They are local to the node, and end with its process.

A token has 256 random bits, and the node keeps only its hash: nothing that the node writes, such as a crash dump,
allows authentication.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from quorumlog.server.metadata.credentials import PasswordVersion

TOKEN_BYTES = 32
#: Maximum number of sessions at one node, and of one user.
MAX_SESSIONS = 20_000
MAX_SESSIONS_OF_USER = 1_000
#: Approximate maximum number of stale entries in the heap, of sessions that were renewed or have ended.
_STALE_ENDS = 1_000
#: An end time that leaves a session its normal lifetime.
NEVER = 1 << 62


@dataclass(slots=True)
class Session:
    """One authentication, and its renewals.

    Arguments:
        user: the user's name.
        password: the password that was used: the session ends if it changes. None: a token was used.
        ends_us: when it expires unless it is renewed, on the node's clock.
        tokens: hashes of the valid tokens: the newest, and the one before it for calls in transit.
        streams: numbers of streams that end with it.
    """

    number: int
    user: str
    password: PasswordVersion | None
    ends_us: int
    tokens: list[bytes] = field(default_factory=list)
    streams: dict[int, None] = field(default_factory=dict)


class Sessions:
    """The sessions of one node.

    Arguments:
        rng: a cryptographically secure source.
        lifetime_us: validity of a token. Clients renew their session before that.
    """

    def __init__(self, rng: random.Random, lifetime_us: int) -> None:
        self._rng = rng
        self.lifetime_us = lifetime_us
        self._numbers = 0
        self._sessions: dict[int, Session] = {}
        self._of_user: dict[str, dict[int, None]] = {}
        #: By hash of a token: the session, and when the token expires.
        self._tokens: dict[bytes, tuple[Session, int]] = {}
        #: A heap of (end, number); it contains a renewed session again.
        self._ends: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        """Iterates over a copy of the sessions, in the order in which they started."""
        return iter(list(self._sessions.values()))

    def has_room_for(self, user: str) -> bool:
        """True if a user may have another session.

        The user's oldest session without a stream is ended for it if necessary: a client that still uses that one
        authenticates again.
        """
        own = self._of_user.get(user, {})
        if len(own) >= MAX_SESSIONS_OF_USER:
            idle = next((number for number in own if not self._sessions[number].streams), None)
            if idle is None:
                return False
            self.end(self._sessions[idle])
        return len(self._sessions) < MAX_SESSIONS

    def begin(self, now: int, user: str, password: PasswordVersion | None, until_us: int = NEVER) -> str:
        """Starts a session and returns its token.

        Arguments:
            until_us: the latest end of the session.
        """
        self._numbers += 1
        session = Session(self._numbers, user, password, now)
        self._sessions[session.number] = session
        self._of_user.setdefault(user, {})[session.number] = None
        return self.renew(now, session, until_us)

    def renew(self, now: int, session: Session, until_us: int = NEVER) -> str:
        """Extends a session and returns a new token. The previous token stays valid until it expires.

        Arguments:
            until_us: the latest end of the session.
        """
        token = base64.urlsafe_b64encode(self._rng.randbytes(TOKEN_BYTES)).rstrip(b"=").decode()
        session.ends_us = min(now + self.lifetime_us, until_us)
        session.tokens.append(_hash(token))
        for old in session.tokens[:-2]:
            del self._tokens[old]
        del session.tokens[:-2]
        self._tokens[session.tokens[-1]] = session, session.ends_us
        heapq.heappush(self._ends, (session.ends_us, session.number))
        if len(self._ends) > 2 * len(self._sessions) + _STALE_ENDS:
            self._ends = [(each.ends_us, each.number) for each in self._sessions.values()]
            heapq.heapify(self._ends)
        return token

    def find(self, now: int, token: str) -> Session | None:
        """Returns the session of a valid token, or None."""
        session, ends_us = self._tokens.get(_hash(token), (None, 0))
        return session if now < ends_us else None

    def end(self, session: Session) -> None:
        """Ends a session, which invalidates its tokens."""
        del self._sessions[session.number]
        for token in session.tokens:
            del self._tokens[token]
        own = self._of_user[session.user]
        del own[session.number]
        if not own:
            del self._of_user[session.user]

    def take_ended(self, now: int) -> list[Session]:
        """Ends expired sessions and returns them."""
        ended = []
        while self._ends and self._ends[0][0] <= now:
            _, number = heapq.heappop(self._ends)
            session = self._sessions.get(number)
            if session is not None and session.ends_us <= now:
                self.end(session)
                ended.append(session)
        return ended

    @property
    def ends_kept(self) -> int:
        """The size of the heap of ends, including stale entries."""
        return len(self._ends)

    @property
    def next_end_us(self) -> int | None:
        """The time at which ``take_ended`` may have something to do; None if no session exists."""
        return self._ends[0][0] if self._ends else None


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
