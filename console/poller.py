"""Polls the cluster, for all pages together, and only while a page is open."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import resource
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from quorumlog.console.image import ClusterImage
from quorumlog.console.node_states import NodeStates, is_silence
from quorumlog.console.node_watches import ClusterAsTold, NodeWatches, address_of, newest_logs
from quorumlog.console.progress import PartitionEnds, group_detail, move_shown
from quorumlog.console.shared_state import Json, SharedState, Thing
from quorumlog.console.transactions import TransactionCalls, TransactionRounds
from quorumlog.sdk import (
    BrokerDescription,
    ClusterChange,
    ClusterDescription,
    GroupDescription,
    GroupListing,
    LogDescription,
    NodeDescription,
    PartitionDescription,
    PartitionReassignment,
    QuorumDescription,
    QuorumlogError,
    TopicDescription,
    TopicPartition,
)
from quorumlog.sdk.errors import NetworkError
from quorumlog.wire.topic_names import COORDINATOR_TOPICS, GROUPS_TOPIC, TRANSACTIONS_TOPIC

#: Polling intervals of the metadata, and of everything else (s).
METADATA_EVERY_S = 0.25
OTHERS_EVERY_S = 1.0
#: And of transactions (s): a round asks for up to 16 descriptions and 64 confirmed reads.
TRANSACTIONS_EVERY_S = 2.0
#: Time limit of a polling round, and age at which the page calls what it shows outdated (s). On a busy machine a round
#: may take seconds, and a single one may fail.
ROUND_LIMIT_S, OUTDATED_AFTER_S = 10.0, 10.0
#: Time limit for a node to describe itself, or the ends of its partitions, before it is queried again (s).
NODE_LIMIT_S = 1.5
#: Maximum number of partitions whose ends are polled: each is a confirmed read, a round of heartbeats of its Raft
#: group.
MAX_ENDS = 64
#: Maximum number of consumer groups that are described.
MAX_GROUPS = 16

_log = logging.getLogger("quorumlog.console")
#: ``ru_maxrss`` is in KiB, on macOS in bytes.
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
_STATUS = Path("/proc/self/status")


class AdminCalls(TransactionCalls, Protocol):
    """The methods of an admin client that the poller uses; implemented by :class:`quorumlog.sdk.aio.AsyncAdmin`."""

    async def describe_cluster(self) -> ClusterDescription: ...
    async def describe_topics(
        self, *, include_internal: bool, linearizable: bool = False
    ) -> list[TopicDescription]: ...
    async def describe_node(self, address: str) -> NodeDescription: ...
    async def describe_quorum(self) -> QuorumDescription: ...
    async def list_partition_reassignments(self) -> dict[TopicPartition, PartitionReassignment]: ...
    async def list_groups(self) -> list[GroupListing]: ...
    async def describe_groups(self, group_ids: Iterable[str], *, include_offsets: bool) -> list[GroupDescription]: ...
    def watch_cluster(self, address: str) -> AsyncIterator[ClusterChange]: ...


class OffsetCalls(Protocol):
    """The methods of a consumer that the poller uses; implemented by :class:`quorumlog.sdk.aio.AsyncConsumer`."""

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...


@dataclass(slots=True, frozen=True)
class PageWish:
    """The details that a page shows.

    Arguments:
        topics: topics whose ends it shows; None: the first ones, up to the limit.
        groups: groups that it shows in detail; None: the first ones.
        transactions: transactional ids that it shows in detail, beside a list of all; None: it shows none at all.
    """

    topics: tuple[str, ...] | None = None
    groups: tuple[str, ...] | None = None
    transactions: tuple[str, ...] | None = None


class OpenPages:
    """The pages that are open, and the details that they show."""

    def __init__(self) -> None:
        self._wishes: dict[object, PageWish] = {}
        self._any = asyncio.Event()

    def __len__(self) -> int:
        return len(self._wishes)

    def open(self, page: object, wish: PageWish) -> None:
        """Registers an opened page."""
        self._wishes[page] = wish
        self._any.set()

    def close(self, page: object) -> None:
        """Removes a closed page."""
        del self._wishes[page]
        if not self._wishes:
            self._any.clear()

    async def until_any(self) -> None:
        """Returns immediately while a page is open, otherwise as soon as one is opened."""
        await self._any.wait()

    def topics(self, all_topics: Sequence[str]) -> list[str]:
        """Returns the topics whose ends are shown, those that a page names first."""
        return _wished((page.topics for page in self._wishes.values()), all_topics)

    def groups(self, all_groups: Sequence[str]) -> list[str]:
        """Returns the groups that are shown in detail, those that a page names first."""
        return _wished((page.groups for page in self._wishes.values()), all_groups)

    def transactions(self) -> list[str] | None:
        """Returns the transactional ids that pages name; None if no page shows transactions."""
        listed = [page.transactions for page in self._wishes.values() if page.transactions is not None]
        return [name for names in listed for name in names] if listed else None


def _wished(wishes: Iterable[tuple[str, ...] | None], existing: Sequence[str]) -> list[str]:
    listed = list(wishes)
    named = [name for names in listed if names is not None for name in names]
    known = set(existing)
    others = existing if None in listed else ()
    return list(dict.fromkeys(name for name in (*named, *others) if name in known))


class Poller:
    """Keeps the shared state current.

    Arguments:
        admin, offsets: the clients. Their errors are shown on the page, and the next round tries again.
        stable_offsets: a consumer of committed records, to which partitions end at their last stable offsets.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        admin: AdminCalls,
        offsets: OffsetCalls,
        stable_offsets: OffsetCalls,
        picture: SharedState,
        pages: OpenPages,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._admin = admin
        self._offsets = offsets
        self._stable_offsets = stable_offsets
        self._picture = picture
        self._pages = pages
        self._clock = clock
        self.image = ClusterImage()
        self._ends = PartitionEnds()
        self._transactions = TransactionRounds(admin, self._ask_stable_offsets, self._ends.end, picture, clock)
        self._load = OwnLoad()
        self._states = NodeStates()
        #: True if a node's list of topics contradicts the known ones, so that a linearizable list has to settle it.
        self._has_doubts = False
        #: When the reports of all watches were last compared.
        self._compared_s = -math.inf
        self._read_by_groups: list[TopicPartition] = []
        self._trouble: dict[str, str] = {}
        self._succeeded_s: dict[str, float] = {}
        self.watches = NodeWatches(admin, self._told, self._ask_silent, clock)

    async def run(self) -> None:
        """Polls until it is cancelled."""
        await self._pages.until_any()
        await self.ask_once("metadata", self.ask_metadata)  # All other rounds depend on the metadata.
        async with asyncio.TaskGroup() as rounds:
            rounds.create_task(self._watch())
            for what, ask, every_s in (
                ("metadata", self.ask_metadata, METADATA_EVERY_S),
                ("topics", self.settle_doubts, OTHERS_EVERY_S),
                ("nodes", self.ask_nodes, OTHERS_EVERY_S),
                ("groups", self.ask_groups, OTHERS_EVERY_S),
                ("ends", self.ask_ends, OTHERS_EVERY_S),
                ("transactions", self.ask_transactions, TRANSACTIONS_EVERY_S),
                ("quorum", self.ask_quorum, OTHERS_EVERY_S),
            ):
                rounds.create_task(self._again_and_again(what, ask, every_s))

    async def _watch(self) -> None:
        """Watches every node for changes while a page is open."""
        try:
            while True:
                await self._pages.until_any()
                while len(self._pages):
                    self.watches.follow(self.image.brokers())
                    await asyncio.sleep(OTHERS_EVERY_S)
                await self.watches.close()
        finally:
            await self.watches.close()

    async def _again_and_again(self, what: str, ask: Callable[[], Awaitable[None]], every_s: float) -> None:
        while True:
            await self._pages.until_any()
            begun_s = self._clock()
            await self.ask_once(what, ask)
            await asyncio.sleep(max(every_s / 10, every_s - (self._clock() - begun_s)))

    async def ask_once(self, what: str, ask: Callable[[], Awaitable[None]]) -> None:
        """Runs one round; if it fails, the page shows the reason, unless it may succeed soon."""
        begun_s = self._clock()
        try:
            async with asyncio.timeout(ROUND_LIMIT_S):
                await ask()
        except (QuorumlogError, TimeoutError) as error:
            said = error.message if isinstance(error, QuorumlogError) else f"no answer within {ROUND_LIMIT_S:g} s"
            is_temporary = isinstance(error, TimeoutError) or error.retriable
            if is_temporary and begun_s - self._succeeded_s.get(what, -math.inf) < OUTDATED_AFTER_S:
                return
            if what not in self._trouble:
                _log.info("cannot query %s: %s", what, said)
            self._trouble[what] = said
        else:
            self._succeeded_s[what] = begun_s
            self._trouble.pop(what, None)
        self._picture.put("trouble", {"trouble": {**self._trouble}} if self._trouble else {})

    # -- metadata -------------------------------------------------------------------------------------------------

    async def ask_metadata(self) -> None:
        """Reads nodes, topics and partitions from the watches; without a watch, from one node. Watches report changes
        immediately, so that their whole reports are compared less often: only to find what a node has missed.
        """
        asked_s = self._clock()
        views = self._views()
        if views:
            if asked_s - self._compared_s >= OTHERS_EVERY_S:
                self._compared_s = asked_s
                self._take_views(views, asked_s)
            return
        cluster, topics = await asyncio.gather(
            self._admin.describe_cluster(), self._admin.describe_topics(include_internal=True)
        )
        now_s = self._clock()
        self.image.take_cluster(cluster, asked_s, now_s)
        self.image.take_topics(topics, now_s)
        self._has_doubts = self.image.doubts(topics)
        self._show_cluster()
        self._show_topics()

    async def settle_doubts(self) -> None:
        """Requests a linearizable list of topics if a node's list contradicts the known ones. That list alone decides
        whether a topic that some node does not list is deleted.
        """
        if not self._has_doubts:
            return
        asked_s = self._clock()
        topics = await self._admin.describe_topics(include_internal=True, linearizable=True)
        self.image.take_confirmed_list(topics, asked_s, self._clock())
        self._has_doubts = False
        self._show_topics()

    def _views(self) -> list[ClusterAsTold]:
        """Returns the cluster as reported by each node that answers."""
        now_s = self._clock()
        heard = (broker for broker in self.image.brokers() if self._states.is_heard(broker.node_id, now_s))
        return self.watches.views(map(address_of, heard))

    def _take_views(self, views: Iterable[ClusterAsTold], now_s: float) -> None:
        self._has_doubts = False
        for view in views:
            self.image.take_cluster(view.cluster, view.cluster_s, now_s)
            self.image.take_topics(view.topics.values(), now_s)
            self._has_doubts = self._has_doubts or self.image.doubts(view.topics.values())
        self._show_cluster()
        self._show_topics()

    def _told(self, address: str, change: ClusterChange, deleted: Iterable[TopicDescription]) -> None:
        """Shows a node's report immediately, except for ends, which are read once a second. A change concerns only the
        topics that it names.
        """
        now_s = self._clock()
        for broker in self.image.brokers():
            if address_of(broker) == address:
                self._states.heard(broker.node_id, now_s)
        if change.cluster is not None:
            self.image.take_cluster(change.cluster, now_s, now_s)
            self._show_cluster()
        for topic in deleted:
            self.image.delete_topic(topic)
        self.image.take_topics(change.topics, now_s)
        if change.topics or deleted:
            self._show_topics()

    def _show_cluster(self) -> None:
        cluster = self.image.cluster
        assert cluster is not None, "it has just been stored"
        shown: Thing = {
            "id": cluster.cluster_id,
            "controller": cluster.controller_id,
            "feature_level": cluster.feature_level,
        }
        self._picture.put("cluster", {"cluster": shown})
        nodes = self.image.brokers()
        self._picture.put("node/", {f"node/{broker.node_id}": self._node(broker) for broker in nodes})

    def _node(self, broker: BrokerDescription) -> Thing:
        now_s, said = self._clock(), self._states.description(broker.node_id)
        state, reason = self._states.state(broker, now_s)
        thing: Thing = {
            "id": broker.node_id,
            "address": f"{broker.host}:{broker.port}",
            "rack": broker.rack,
            "machine": broker.machine,
            "state": state.value,
            "reason": reason,
            "silent_s": self._states.silent_s(broker.node_id, now_s),
            "fenced": broker.fenced,
            "leaving": broker.leaving,
            "lost": broker.lost,
            "witness_only": broker.witness_only,
            "version": broker.version,
        }
        if said is not None:
            thing |= {
                "used_bytes": str(said.storage_used_bytes),
                "free_bytes": str(said.storage_free_bytes),
                "raft_groups": said.groups,
                "raft_groups_led": said.groups_led,
                "damaged_entries": said.damaged_entries,
            }
        return thing

    def _show_topics(self) -> None:
        topics: dict[str, Thing] = {}
        partitions: dict[str, Thing] = {}
        for topic, its in self.image.topics():
            topics[f"topic/{topic.name}"] = {
                "name": topic.name,
                "id": topic.topic_id,
                "internal": topic.internal,
                "partitions": len(its),
                "configs": {**topic.configs},
            }
            for each in its:
                partitions[f"partition/{topic.name}/{each.partition}"] = _partition(topic.name, each)
        self._picture.put("topic/", topics)
        self._picture.put("partition/", partitions)

    # -- nodes and quorum ------------------------------------------------------------------------------------------

    async def ask_nodes(self) -> None:
        """Queries every node for its description."""
        brokers = self.image.brokers()
        await asyncio.gather(*(self._ask_node(broker, 2) for broker in brokers))
        self._states.keep_only(broker.node_id for broker in brokers)
        self._picture.put("console", {"console": self._load.look(len(self._pages))})
        if brokers:
            self._show_cluster()

    async def _ask_silent(self, address: str) -> None:
        """Queries a node whose watch has ended, so that it is shown as down immediately, and not after the next
        round.
        """
        for broker in self.image.brokers():
            if address_of(broker) == address:
                await self._ask_node(broker, 1)

    async def _ask_node(self, broker: BrokerDescription, attempts: int) -> None:
        """Queries a node for its description. A broken connection is retried immediately: a node is unreachable only if
        the last attempt fails, too.
        """
        node_id, was_heard = broker.node_id, self._states.is_heard(broker.node_id, self._clock())
        for attempts_left in reversed(range(attempts)):
            try:
                async with asyncio.timeout(NODE_LIMIT_S):
                    described = await self._admin.describe_node(address_of(broker))
                self._states.heard(node_id, self._clock(), described)
                break
            except (QuorumlogError, TimeoutError) as error:
                if isinstance(error, NetworkError) and not is_silence(error) and attempts_left:
                    continue
                self._states.failed(node_id, error, self._clock())
                break
        # Shown immediately: other nodes may still be waited for.
        if self._states.is_heard(node_id, self._clock()) != was_heard and self.image.cluster is not None:
            self._show_cluster()

    async def ask_quorum(self) -> None:
        """Polls the voters of the metadata quorum, and the partitions that are being moved."""
        quorum = await self._admin.describe_quorum()
        replicas: list[Json] = [
            {
                "id": each.node_id,
                "votes": votes,
                "end": None if each.log_end_index is None else str(each.log_end_index),
                # A flag instead of the age, which would change with every round.
                "heard": each.last_contact_ms is not None and each.last_contact_ms < 2_000,
            }
            for votes, all_of_them in ((True, quorum.voters), (False, quorum.observers))
            for each in all_of_them
        ]
        shown: Thing = {
            "leader": quorum.leader_id,
            "epoch": quorum.leader_epoch,
            "high_watermark": str(quorum.high_watermark),
            "replicas": replicas,
            "wanted_voters": [*quorum.wanted_voters],
            "outgoing_voters": [*quorum.outgoing_voters],
        }
        self._picture.put("quorum", {"quorum": shown})
        moves = await self._admin.list_partition_reassignments()
        copies = [copy for node in self._states.descriptions() for copy in node.copies]
        shown_moves = {f"move/{tp.topic}/{tp.partition}": move_shown(tp, move, copies) for tp, move in moves.items()}
        self._picture.put("move/", shown_moves)

    # -- groups and ends ------------------------------------------------------------------------------------------

    async def ask_groups(self) -> None:
        """Polls the names of all groups, and the details of those that are shown."""
        # Listing groups would create the topic.
        if self.image.topic_id(GROUPS_TOPIC) is None:
            self._picture.put("group/", {})
            self._picture.put("detail/", {})
            return
        listed = await self._admin.list_groups()
        self._picture.put(
            "group/",
            {
                f"group/{each.group_id}": {"id": each.group_id, "state": each.state.value, "members": each.members}
                for each in listed
            },
        )
        shown = self._pages.groups([each.group_id for each in listed])[:MAX_GROUPS]
        groups = await self._admin.describe_groups(shown, include_offsets=True) if shown else []
        details = {f"detail/{group.group_id}": group_detail(group, self._ends) for group in groups}
        self._read_by_groups = _read_partitions(groups)
        self._picture.put("detail/", details)

    async def ask_ends(self) -> None:
        """Polls the ends of the partitions that are shown, at most :data:`MAX_ENDS`."""
        reported = dict(newest_logs(self._views()))
        of_topics = {topic.name: its for topic, its in self.image.topics() if not topic.internal}
        shown = self._pages.topics(list(of_topics))
        partitions = [TopicPartition(name, each.partition) for name in shown for each in of_topics[name]]
        partitions = list(dict.fromkeys((*partitions, *self._read_by_groups)))
        partitions = [tp for tp in partitions if tp not in reported][:MAX_ENDS]
        self._ends.keep_only((*partitions, *reported))
        self._take_logs(reported)
        # A leader that does not answer must not hide the ends that other leaders report.
        by_leader = self._by_leader(partitions)
        failures = await asyncio.gather(*(self._ask_ends_of(its) for its in by_leader), return_exceptions=True)
        self._picture.put("end/", self._ends.things())
        for failure in failures:
            if failure is not None:
                raise failure

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> Iterable[list[TopicPartition]]:
        """Returns partitions by their leaders, without those whose leader does not answer."""
        now_s = self._clock()
        found: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            leader = self.image.leader(tp)
            if leader is not None and self._states.is_heard(leader, now_s):
                found.setdefault(leader, []).append(tp)
        return found.values()

    def _take_logs(self, told: Mapping[TopicPartition, LogDescription]) -> None:
        now_s = self._clock()
        for tp, log in told.items():
            topic_id = self.image.topic_id(tp.topic)
            if topic_id is not None and tp.topic not in COORDINATOR_TOPICS:
                self._ends.take(tp, topic_id, log.high_watermark, now_s)
                self._ends.describe(tp, log.log_start_offset, log.size_bytes)

    async def _ask_ends_of(self, partitions: list[TopicPartition]) -> None:
        asked_s = self._clock()
        async with asyncio.timeout(NODE_LIMIT_S):
            ends = await self._offsets.end_offsets(partitions)
        for tp, end in ends.items():
            topic_id = self.image.topic_id(tp.topic)
            if topic_id is not None:
                self._ends.take(tp, topic_id, end, asked_s)

    # -- transactions ---------------------------------------------------------------------------------------------

    async def ask_transactions(self) -> None:
        """Polls the transactions, if a page shows them."""
        named = self._pages.transactions()
        if named is None:
            self._transactions.forget()
        elif self.image.topic_id(TRANSACTIONS_TOPIC) is None:
            self._transactions.show_none()  # A request would create the topic.
        else:
            await self._transactions.ask(named)

    async def _ask_stable_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Requests last stable offsets, without those of leaders that do not answer."""
        found: dict[TopicPartition, int] = {}

        async def ask(its: list[TopicPartition]) -> None:
            with contextlib.suppress(QuorumlogError, TimeoutError):
                async with asyncio.timeout(NODE_LIMIT_S):
                    found.update(await self._stable_offsets.end_offsets(its))

        await asyncio.gather(*map(ask, self._by_leader(partitions)))
        return found


def _partition(topic: str, partition: PartitionDescription) -> Thing:
    return {
        "topic": topic,
        "partition": partition.partition,
        "leader": partition.leader,
        "epoch": partition.leader_epoch,
        "replicas": [*partition.replicas],
        "isr": [*partition.isr],
        "witness": partition.witness,
    }


def _read_partitions(groups: Sequence[GroupDescription]) -> list[TopicPartition]:
    """Returns the partitions that groups read: those assigned to members, and those with committed offsets."""
    owned = (tp for group in groups for member in group.members for tp in member.assignment)
    return list(dict.fromkeys((*owned, *(tp for group in groups for tp in group.offsets or ()))))


class OwnLoad:
    """The console's own load: its share of a core since the last look, and its peak memory."""

    def __init__(self) -> None:
        self._cpu_s = time.process_time()
        self._at_s = time.monotonic()

    def look(self, pages: int) -> Thing:
        """Returns the load, for the page.

        Arguments:
            pages: number of open pages.
        """
        cpu_s, at_s = time.process_time(), time.monotonic()
        share = (cpu_s - self._cpu_s) / max(0.001, at_s - self._at_s)
        self._cpu_s, self._at_s = cpu_s, at_s
        # Rounded: otherwise the value would change with every round.
        return {"pages": pages, "cpu_percent": round(share * 100), "memory_mb": round(_most_memory() / 1e6 / 5) * 5}


def _most_memory() -> int:
    """Returns the peak resident memory of this process, in bytes. The kernel's value for ``getrusage`` starts with that
    of the parent process.
    """
    try:
        peak = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT
