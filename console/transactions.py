"""Transactional ids, polled while a page shows them: which transactions are open, and what they hold back."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from quorumlog.console.shared_state import Json, SharedState, Thing
from quorumlog.sdk import (
    QuorumlogError,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)

#: Maximum number of transactional ids that are shown, and of those that are described.
MAX_LISTED, MAX_DESCRIBED = 1_000, 16
#: Maximum number of partitions whose last stable offsets are polled: each is a confirmed read.
MAX_HELD = 64
#: Maximum number of partitions, and of consumer groups, of one transaction that are shown.
MAX_PARTICIPANTS = 200
#: All transactional ids are listed again after a second for each so many. In between, only those are whose transaction
#: has not ended.
LISTED_PER_SECOND = 1_000
#: States of a transaction that readers wait for.
UNFINISHED = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
_Participant = TypeVar("_Participant", TopicPartition, str)


class TransactionCalls(Protocol):
    """The methods of an admin client that this module uses; implemented by :class:`quorumlog.sdk.aio.AsyncAdmin`."""

    async def list_transactions(self, states: Iterable[TransactionState] | None = None) -> list[TransactionListing]: ...
    async def describe_transactions(self, transactional_ids: Iterable[str]) -> list[TransactionDescription]: ...


class TransactionRounds:
    """Polls the coordinators of transactions, and shows what they report.

    Arguments:
        stable: requests last stable offsets; it leaves out partitions whose leaders do not answer.
        end: returns the known end of a partition.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        admin: TransactionCalls,
        stable: Callable[[Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]],
        end: Callable[[TopicPartition], int | None],
        picture: SharedState,
        clock: Callable[[], float],
    ) -> None:
        self._admin = admin
        self._stable = stable
        self._end = end
        self._picture = picture
        self._clock = clock
        self._listed: dict[str, TransactionListing] = {}
        #: Ids whose transaction has ended since all were listed. Only the next list of all says how.
        self._ended: set[str] = set()
        self._list_all_at_s = -math.inf
        self._is_shown = False

    def forget(self) -> None:
        """Shows nothing until the next round."""
        if self._is_shown:
            self._listed, self._ended, self._list_all_at_s = {}, set(), -math.inf
            for prefix in ("transactions", "transaction/", "participants/"):
                self._picture.put(prefix, {})
            self._is_shown = False

    def show_none(self) -> None:
        """Shows that no transactional ids exist."""
        self.forget()
        self._show([], [], {})

    async def ask(self, named: Iterable[str]) -> None:
        """Polls once.

        Arguments:
            named: transactional ids that pages show in detail. They are described first.
        """
        listed = await self._list()
        unfinished = [each.transactional_id for each in listed if self._is_unfinished(each)]
        names = dict.fromkeys([*(name for name in named if name in self._listed), *unfinished])
        try:
            described = await self._admin.describe_transactions(list(names)[:MAX_DESCRIBED]) if names else []
        except QuorumlogError:
            self._list_all_at_s = -math.inf  # The list may be outdated: an id may have been forgotten.
            raise
        held = dict.fromkeys(tp for each in described if each.state in UNFINISHED for tp in _first(each.partitions))
        stable = await self._stable(list(held)[:MAX_HELD]) if held else {}
        self._show(listed, described, stable)

    async def _list(self) -> list[TransactionListing]:
        """Returns all transactional ids, those first whose transactions have not ended, the oldest in front."""
        now_s = self._clock()
        if now_s >= self._list_all_at_s:
            self._listed = {each.transactional_id: each for each in await self._admin.list_transactions()}
            self._ended.clear()
            self._list_all_at_s = now_s + len(self._listed) / LISTED_PER_SECOND
        else:
            news = {each.transactional_id: each for each in await self._admin.list_transactions(UNFINISHED)}
            self._ended |= {name for name, each in self._listed.items() if each.state in UNFINISHED}
            self._ended -= news.keys()
            self._listed |= news
        return sorted(
            self._listed.values(),
            key=lambda each: (not self._is_unfinished(each), each.started_ms or 0, each.transactional_id),
        )

    def _is_unfinished(self, listed: TransactionListing) -> bool:
        return listed.state in UNFINISHED and listed.transactional_id not in self._ended

    def _show(
        self,
        listed: Sequence[TransactionListing],
        described: Sequence[TransactionDescription],
        stable: Mapping[TopicPartition, int],
    ) -> None:
        summary: Thing = {
            "total": len(listed),
            "unfinished": sum(map(self._is_unfinished, listed)),
            "described": sum(each.state in UNFINISHED for each in described),
        }
        self._picture.put(
            "transaction/",
            {
                f"transaction/{each.transactional_id}": {
                    "id": each.transactional_id,
                    "state": "Ended" if each.transactional_id in self._ended else each.state.value,
                    "started_ms": None if each.transactional_id in self._ended else each.started_ms,
                    "producer": str(each.producer_id),
                    "epoch": each.producer_epoch,
                }
                for each in listed[:MAX_LISTED]
            },
        )
        self._picture.put(
            "participants/",
            {f"participants/{each.transactional_id}": self._detail(each, stable) for each in described},
        )
        self._picture.put("transactions", {"transactions": summary})
        self._is_shown = True

    def _detail(self, described: TransactionDescription, stable: Mapping[TopicPartition, int]) -> Thing:
        partitions: list[Json] = []
        for tp in _first(described.partitions):
            at, end = stable.get(tp), self._end(tp)
            if at is not None and end is not None:
                end = max(end, at)  # The end was read before.
            row: Thing = {
                "topic": tp.topic,
                "partition": tp.partition,
                "missing": described.partitions[tp],
                "stable": None if at is None else str(at),
                "end": None if end is None else str(end),
                "held": None if at is None or end is None else str(end - at),
            }
            partitions.append(row)
        groups: list[Json] = [{"id": name, "missing": described.groups[name]} for name in _first(described.groups)]
        return {
            "id": described.transactional_id,
            "state": described.state.value,
            "producer": str(described.producer_id),
            "epoch": described.producer_epoch,
            "started_ms": described.started_ms,
            "timeout_ms": described.transaction_timeout_ms,
            "place": None
            if described.place is None
            else {"term": str(described.place.term), "index": str(described.place.index)},
            "cause": described.cause,
            "writers": described.writers,
            "coordinator": described.coordinator,
            "partitions": partitions,
            "groups": groups,
            "participants": len(described.partitions) + len(described.groups),
        }


def _first(participants: Iterable[_Participant]) -> list[_Participant]:
    return sorted(participants)[:MAX_PARTICIPANTS]
