"""Who has signed in at this node, and until when. Sessions are this node's alone, and end with its process.

A token is 256 bits that nobody can guess, and the node keeps a hash of it only: what it writes anywhere, such as a
crash dump, lets nobody in.
"""

from __future__ import annotations

import base64
import hashlib
import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

TOKEN_BYTES = 32
#: Sessions at one node, and of one user.
MAX_SESSIONS = 20_000
MAX_SESSIONS_OF_USER = 1_000
#: Ends that are none any more, of sessions that were renewed or have ended, are kept up to about so many.
_STALE_ENDS = 1_000
#: An end that leaves a session to its lifetime.
NEVER = 1 << 62


@dataclass(slots=True)
class Session:
    """One sign-in, and its renewals.

    Arguments:
        user: who.
        credential_index: of the entry that set the password with which it began: it ends with that. None: it began with
            a token.
        ends_us: when it ends unless it is renewed, on the node's clock.
        tokens: hashes of those that are good: the newest, and the one before it for calls that are on their way.
        streams: numbers of streams that end with it.
    """

    number: int
    user: str
    credential_index: int | None
    ends_us: int
    tokens: list[bytes] = field(default_factory=list)
    streams: dict[int, None] = field(default_factory=dict)


class Sessions:
    """The sessions of one node.

    Arguments:
        rng: a source that nobody can guess.
        lifetime_us: how long a token is good. Clients renew their session before that.
    """

    def __init__(self, rng: random.Random, lifetime_us: int) -> None:
        self._rng = rng
        self.lifetime_us = lifetime_us
        self._numbers = 0
        self._sessions: dict[int, Session] = {}
        self._of_user: dict[str, dict[int, None]] = {}
        #: By the hash of a token: the session, and until when the token is good.
        self._tokens: dict[bytes, tuple[Session, int]] = {}
        #: (end, number) of sessions, the earliest first; one that was renewed is in it again.
        self._ends: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        """Those that there are now, in the order in which they began."""
        return iter(list(self._sessions.values()))

    def has_room_for(self, user: str) -> bool:
        """Whether a user may have another session. The user's oldest one that has no stream makes way for it: whoever
        still uses it signs in again."""
        own = self._of_user.get(user, {})
        if len(own) >= MAX_SESSIONS_OF_USER:
            idle = next((number for number in own if not self._sessions[number].streams), None)
            if idle is None:
                return False
            self.end(self._sessions[idle])
        return len(self._sessions) < MAX_SESSIONS

    def begin(self, now: int, user: str, credential_index: int | None, until_us: int = NEVER) -> str:
        """A new session; returns its token.

        Arguments:
            until_us: when it ends at the latest.
        """
        self._numbers += 1
        session = Session(self._numbers, user, credential_index, now)
        self._sessions[session.number] = session
        self._of_user.setdefault(user, {})[session.number] = None
        return self.renew(now, session, until_us)

    def renew(self, now: int, session: Session, until_us: int = NEVER) -> str:
        """Gives a session more time, and a new token. The one before that stays good until its time is over.

        Arguments:
            until_us: when it ends at the latest.
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
        """The session that a token is good for."""
        session, ends_us = self._tokens.get(_hash(token), (None, 0))
        return session if now < ends_us else None

    def end(self, session: Session) -> None:
        """From now on its tokens are good for nothing."""
        del self._sessions[session.number]
        for token in session.tokens:
            del self._tokens[token]
        own = self._of_user[session.user]
        del own[session.number]
        if not own:
            del self._of_user[session.user]

    def take_ended(self, now: int) -> list[Session]:
        """Ends those whose time is over, and returns them."""
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
        """How many ends are kept, with those that are none any more."""
        return len(self._ends)

    @property
    def next_end_us(self) -> int | None:
        """When ``take_ended`` may have something to do."""
        return self._ends[0][0] if self._ends else None


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
