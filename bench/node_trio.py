"""Three shipped nodes in one process, on virtual time, over memory instead of network and disk: what is left is what
rounds cost in Python."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable

from google.protobuf.message import Message as ProtoMessage

from quorumlog.raft.types import Entry
from quorumlog.server.config.options import NodeOptions, ScrubOptions
from quorumlog.server.node.node import Node
from quorumlog.server.step.events import (
    ClientRequest,
    Effects,
    Event,
    FrameReceived,
    PeerConnected,
    PeerDisconnected,
    PeerFrame,
    PeerIdentified,
    StorageDone,
)
from quorumlog.server.transport.peers.peer_codec import decode_frame, encode_frame, parse_frame
from quorumlog.simulator.world.durable_raft_group import DurableRaftGroup, apply_write
from quorumlog.storage.batch_row import BatchRow
from quorumlog.storage.interface import OpeningDamage
from quorumlog.storage.transaction import RaftGroupState, Space, StorageTransaction
from quorumlog.v1 import admin_pb2
from quorumlog.v1 import data_plane_pb2 as wire

NODES = (1, 2, 3)
#: Virtual time that a frame, a sync or an answer takes (µs).
HOP_US = 100
EPOCH_MS = 1_700_000_000_000
TOPIC = "bench"
#: Steps of all nodes within which the cluster must get where it is wanted.
PATIENCE = 200_000


class MemoryDisk:
    """Durable state that is durable at once: implements ``StorageReader``."""

    def __init__(self) -> None:
        self._groups: dict[int, DurableRaftGroup] = {}
        self._rows: dict[bytes, bytes] = {}

    def write(self, transaction: StorageTransaction) -> None:
        """Carries a transaction out."""
        for write in transaction.writes:
            after = apply_write(self._groups.get(write.group), write)
            if after is not None:
                self._groups[write.group] = after
        self._rows.update({key: value for key, value in transaction.node_state.items() if value is not None})

    def groups(self) -> dict[int, RaftGroupState]:
        """Nothing: a node is started once, on an empty disk."""
        return {}

    def moved_aside(self) -> frozenset[str]:
        """Nothing was."""
        return frozenset()

    def opening_damage(self) -> OpeningDamage:
        """Nothing is ever damaged."""
        return OpeningDamage((), {})

    def node_state(self) -> dict[bytes, bytes]:
        """The node's own rows."""
        return dict(self._rows)

    def term_at(self, group: int, index: int) -> int:
        """Term of an entry."""
        return self.entries(group, index, index, 0)[0].term

    def entries(self, group: int, first: int, last: int, max_bytes: int) -> list[Entry]:
        """Entries first..last, cut once ``max_bytes`` is reached; at least one."""
        durable = self._groups[group]
        offset = durable.anchor.index + 1
        found = durable.entries[first - offset : last - offset + 1]
        size = 0
        for count, entry in enumerate(found, start=1):
            size += len(entry.data)
            if size >= max_bytes:
                return found[:count]
        return found

    def find_offset(self, group: int, offset: int) -> int | None:
        """Index of the first batch whose last offset is at or after ``offset``."""
        return self._groups[group].find_offset(offset)

    def last_batch(self, group: int) -> BatchRow | None:
        """The last batch above the anchor."""
        batches = self._groups[group].batches
        return batches[-1] if batches else None

    def find_batch(self, group: int, first_offset: int, reached: Callable[[BatchRow], bool]) -> BatchRow | None:
        """The first batch that holds ``first_offset`` or a later one and for which ``reached`` holds."""
        return self._groups[group].find_batch(first_offset, reached)

    def space(self) -> Space:
        """All the room in the world."""
        return Space(0, 1 << 40)


class _Machine:
    """One node, what it is given next, and the CPU time that its steps have taken."""

    def __init__(self, options: NodeOptions, now: int) -> None:
        self.disk = MemoryDisk()
        self.node = Node(options, self.disk, random.Random(options.node_id), now, EPOCH_MS, options.node_id)
        self.inbox: list[Event] = []
        self.replies: list[ProtoMessage] = []
        self.wanted: dict[int, str] = {}
        self.connected: set[int] = set()
        self.cpu_s = 0.0
        self.steps = 0


class Trio:
    """A cluster of three nodes with one topic.

    Arguments:
        partitions: of the topic, each on all three nodes; 0 for no topic.
        codec: frames between the nodes are encoded and decoded as on the wire; counted in ``codec_s``.
    """

    def __init__(self, partitions: int, *, codec: bool = True) -> None:
        self.now = 0
        self.codec_s = 0.0
        self._codec = codec
        self._requests = 0
        addresses = {number: f"node-{number}:1" for number in NODES}
        self._by_address = {address: number for number, address in addresses.items()}
        # What is in memory needs no scrub.
        unscrubbed = ScrubOptions(bytes_per_second=0)
        self._machines = {
            number: _Machine(NodeOptions(number, addresses[number], addresses, scrub=unscrubbed), self.now)
            for number in NODES
        }
        self._until(lambda: all(not machine.node.not_ready() for machine in self._machines.values()))
        self.topic_id = b""
        if partitions:
            self._create(partitions)

    # -- the cluster ------------------------------------------------------------------------------------------------

    def step_seconds(self) -> dict[int, float]:
        """CPU time that each node's steps have taken."""
        return {number: machine.cpu_s for number, machine in self._machines.items()}

    def steps(self) -> int:
        """Steps of all nodes."""
        return sum(machine.steps for machine in self._machines.values())

    def led_by(self, node: int) -> list[int]:
        """Partitions of the topic that a node leads."""
        answer = self.ask(node, wire.MetadataRequest(topics=[TOPIC]))
        assert isinstance(answer, wire.MetadataResponse)
        return [one.partition for one in answer.topics[0].partitions if one.leader == node]

    def ask(self, node: int, request: ProtoMessage) -> ProtoMessage:
        """One request and its answer."""
        return self.ask_all(node, [request])[0]

    def ask_all(self, node: int, requests: Iterable[ProtoMessage]) -> list[ProtoMessage]:
        """Sends requests that reach a node together; returns the responses once nothing is in flight."""
        machine = self._machines[node]
        machine.replies = []
        wanted = 0
        for request in requests:
            wanted += 1
            self._requests += 1
            machine.inbox.append(ClientRequest(self._requests, request))
        self._until(lambda: len(machine.replies) >= wanted)
        self.drain()
        return machine.replies

    def lose_way_to(self, peer: int, reopens_after_s: float) -> None:
        """Breaks all links of a node. After a while it opens its own streams again, which carry both ways; other nodes
        can no longer open streams to it."""
        others = {number: machine for number, machine in self._machines.items() if number != peer}
        for number, machine in others.items():
            machine.inbox.append(PeerDisconnected(peer))
            self._machines[peer].inbox.append(PeerDisconnected(number))
        self.pass_time(reopens_after_s)
        inbox = self._machines[peer].inbox
        inbox.extend(PeerConnected(number, machine.node.identity) for number, machine in others.items())

    def drain(self) -> None:
        """Continues until nothing is under way."""
        while any(machine.inbox for machine in self._machines.values()):
            self._turn()

    def pass_time(self, seconds: float) -> None:
        """Lets virtual time pass, deadline by deadline."""
        end = self.now + int(seconds * 1_000_000)
        while self.now < end:
            self._turn()

    def _create(self, partitions: int) -> None:
        request = admin_pb2.CreateTopicsRequest(timeout_ms=10_000)
        request.topics.add(name=TOPIC, num_partitions=partitions, replication_factor=len(NODES))
        while True:
            answer = self.ask(NODES[0], request)
            assert isinstance(answer, admin_pb2.CreateTopicsResponse)
            if answer.results[0].error.code == 0:
                break
            self.pass_time(0.1)
        self._until(lambda: sum(len(self.led_by(node)) for node in NODES) == partitions)
        described = self.ask(NODES[0], wire.MetadataRequest(topics=[TOPIC]))
        assert isinstance(described, wire.MetadataResponse)
        self.topic_id = described.topics[0].topic_id

    def _until(self, there: Callable[[], bool]) -> None:
        for _ in range(PATIENCE):
            if there():
                return
            self._turn()
        raise TimeoutError("the cluster does not get where it is wanted")

    # -- one turn ---------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Every node that has something to do takes a step. With nothing under way, time continues to the next
        deadline."""
        machines = self._machines.values()
        if any(machine.inbox for machine in machines):
            self.now += HOP_US
        else:
            self.now = max(self.now + HOP_US, min(machine.node.next_deadline for machine in machines))
        wall_ms = EPOCH_MS + self.now // 1_000
        stepped: list[tuple[int, Effects]] = []
        for number, machine in self._machines.items():
            if machine.inbox or machine.node.next_deadline <= self.now:
                events, machine.inbox = machine.inbox, []
                began = time.thread_time()
                effects = machine.node.step(self.now, wall_ms, events)
                machine.cpu_s += time.thread_time() - began
                machine.steps += 1
                stepped.append((number, effects))
        for number, effects in stepped:
            self._carry_out(number, effects)

    def _carry_out(self, number: int, effects: Effects) -> None:
        machine = self._machines[number]
        if effects.halt is not None:
            raise RuntimeError(f"node {number} ends: {effects.halt.error}")
        for peer, frame in effects.frames:
            self._machines[peer].inbox.append(FrameReceived(number, self._carried(number, peer, frame)))
        if effects.transaction is not None:
            machine.disk.write(effects.transaction)
            machine.inbox.append(StorageDone(effects.transaction.number))
        machine.replies.extend(reply.message for reply in effects.replies)
        for address in effects.identify:
            contacted = self._machines[self._by_address[address]].node
            machine.inbox.append(PeerIdentified(contacted.identity, contacted.standing(number)))
        if effects.connect is not None:
            machine.wanted = effects.connect
        for peer in machine.wanted.keys() - machine.connected:
            other = self._machines[peer].node
            if other.accepts_peer(machine.node.identity) is None:
                machine.connected.add(peer)
                machine.inbox.append(PeerConnected(peer, other.identity))

    def _carried(self, sender: int, receiver: int, frame: PeerFrame) -> PeerFrame:
        if not self._codec:
            return frame
        began = time.thread_time()
        carried = decode_frame(parse_frame(encode_frame(frame)), frame.stream, sender, receiver)
        self.codec_s += time.thread_time() - began
        return carried
