"""Requests of unauthenticated clients to the services between nodes.

A client that reaches the port can learn everything that a node reports of itself, and could impersonate it: there is no
authentication. So the strangers here stop short of that: they claim no cluster, another cluster, or an unknown node id.
"""

from __future__ import annotations

import random

from quorumlog.chaos.hostile.batches import assemble
from quorumlog.chaos.hostile.known_ids import Vocabulary
from quorumlog.chaos.hostile.requests import RequestMaker
from quorumlog.chaos.hostile.services import METHODS, PEER_METHODS
from quorumlog.chaos.hostile.wire import Wire
from quorumlog.v1 import data_plane_pb2, peer_pb2

_STREAMS = ("Control", "Data", "Snapshot")
#: Metadata keys of the streams between nodes.
_GENERATION, _WANTED = "quorumlog-generation", "quorumlog-wanted-node"
#: Ids of nodes that the cluster does not have.
_UNHEARD_OF = (77, 2**31 - 1, 0)


class Strangers:
    """Opens peer streams that no node opens.

    Arguments:
        chance: source of all random decisions.
    """

    def __init__(self, wire: Wire, vocabulary: Vocabulary, maker: RequestMaker, chance: random.Random) -> None:
        self._wire = wire
        self._vocabulary = vocabulary
        self._maker = maker
        self._chance = chance

    async def visit(self) -> None:
        """Sends an identity, valid or not, and then frames."""
        chance = self._chance
        node = self._vocabulary.node(chance)
        if chance.random() < 0.2:
            request = self._maker.request(peer_pb2.IdentifyRequest)
            await self._wire.call(node, PEER_METHODS["Identify"], request.SerializeToString(), 2.0)
            return
        method = PEER_METHODS[chance.choice(_STREAMS)]
        metadata = ((_GENERATION, str(chance.choice((0, 1, 1 << 62)))), (_WANTED, str(node)))
        stream = self._wire.open(node, method, metadata if chance.random() < 0.9 else ())
        await stream.send((await self._hello(node)).SerializeToString())
        for number in range(chance.choice((0, 1, 5, 20))):
            frame = self._maker.request(peer_pb2.Frame)
            assert isinstance(frame, peer_pb2.Frame)
            frame.sequence = number + 1
            self._fill_entries(frame)
            if not await stream.send(frame.SerializeToString()):
                break
        await stream.settle(2, 0.2)
        await stream.cancel()

    async def _hello(self, node: int) -> peer_pb2.Frame:
        chance = self._chance
        frame = self._maker.request(peer_pb2.Frame)
        assert isinstance(frame, peer_pb2.Frame)
        identity = frame.identity
        identity.Clear()
        identity.cluster_id = chance.choice(("", "another-cluster", "x" * 300))
        identity.node_id = chance.choice((*_UNHEARD_OF, -1, *self._vocabulary.nodes))
        identity.directory_id = chance.choice(("", "nowhere", "x" * 300))
        identity.address = chance.choice(("", "127.0.0.1:1", "nonsense"))
        identity.boot_id = chance.choice((0, 1, (1 << 64) - 1))
        if chance.random() < 0.3:
            answer = await self._wire.call(node, METHODS["Metadata"], b"", 2.0)
            if isinstance(answer, data_plane_pb2.MetadataResponse):
                identity.cluster_id = answer.cluster_id
                identity.node_id = chance.choice(_UNHEARD_OF)
        return frame

    def _fill_entries(self, frame: peer_pb2.Frame) -> None:
        """Sets entries with correct checksums: otherwise none would pass the first check."""
        for message in frame.messages:
            if message.WhichOneof("body") == "append_request":
                body = message.append_request
                del body.entries[:]
                fields = {"group": message.group, "index": (body.prev_index + 1) % (1 << 64), "term": message.term}
                fields["kind"] = self._chance.randrange(4)
                body.entries.append(assemble(b"nonsense", fields))
