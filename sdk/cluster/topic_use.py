"""Which topics a client uses: of the others it keeps nothing, and asks no more.

A client may live for months and use topics that live for minutes. Kafka's producer does the same with what has not been
used for ``metadata.max.idle.ms``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

#: A topic that nobody has used for so long is forgotten. Whoever wants it again asks for it, as for any other.
IDLE_S = 300.0
#: How often to look for such topics: it takes a look at all that there are.
_LOOK_EVERY_S = IDLE_S / 10


class TopicUse:
    """When topics were used last.

    Arguments:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._used_at_s: dict[str, float] = {}
        self._users: list[Callable[[], Iterable[str]]] = []
        self._look_at_s = clock() + _LOOK_EVERY_S

    def note(self, topics: Iterable[str]) -> None:
        """Somebody uses topics now."""
        self._used_at_s.update(dict.fromkeys(topics, self._clock()))

    def add_user(self, user: Callable[[], Iterable[str]]) -> None:
        """Adds somebody who says at any time which topics he uses then."""
        self._users.append(user)

    def take_idle(self, known: Iterable[str]) -> list[str]:
        """Those of all known topics that were not used for :data:`IDLE_S`. Only now and then are there any.

        One that is seen here for the first time counts as used now.
        """
        now = self._clock()
        if now < self._look_at_s:
            return []
        self._look_at_s = now + _LOOK_EVERY_S
        for user in self._users:
            self.note(user())
        used = {name: self._used_at_s.get(name, now) for name in known}
        idle = [name for name, at_s in used.items() if now - at_s >= IDLE_S]
        for name in idle:
            del used[name]
        self._used_at_s = used
        return idle
