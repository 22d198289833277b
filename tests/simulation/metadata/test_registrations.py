"""Nodes register as the processes that they are, also where one follows another so soon that both are answered."""

from __future__ import annotations

import pytest
from quiet_cluster import SECOND, Quiet

from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.step.events import PeerFrame
from quorumlog.v1 import admin_pb2


def test_an_answer_to_the_former_process_registers_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ask before anything is decided. Taken for its own, the answer to the first would leave the second unknown:
    its heartbeats have the epoch that is known."""
    quiet = Quiet(1)
    quiet.until(lambda: quiet.led_by(0) is not None, 5)
    controller = quiet.led_by(0)
    victim = next(process for node, process in quiet.cluster.processes.items() if node != controller)
    requests: dict[int, set[int]] = {}
    answered: set[int] = set()
    send = quiet.cluster.network.send

    def noted(sender: int, receiver: int, frame: PeerFrame) -> None:
        if sender == victim.node_id:
            requests.setdefault(victim.life, set()).update(each.request_id for each in frame.controller_requests)
        if receiver == victim.node_id:
            answered.update(each.request_id for each in frame.controller_responses)
        send(sender, receiver, frame)

    monkeypatch.setattr(quiet.cluster.network, "send", noted)
    for process in quiet.cluster.processes.values():
        process.disk.stalled_until = quiet.scheduler.now + SECOND
    for _ in range(2):
        victim.die(silent=False)
        quiet.cluster.start(victim.node_id)
        quiet.run(0.4)
    first, second = (requests[life] for life in (victim.life - 1, victim.life))
    quiet.until(lambda: bool(first & answered), 2)
    quiet.run(2)
    assert victim.node is not None
    images = [process.image for process in quiet.cluster.processes.values() if process.image is not None]
    known = {image.brokers[victim.node_id].registration.boot_id for image in images}
    assert known == {victim.node.identity.boot_id}
    # Whichever of the first one's numbers was answered late, the second uses none of them.
    assert len(second) > len(first)
    assert not first & second


class Forming(Quiet):
    """A cluster that is about to form, without a topic."""

    def create(self, name: str, partitions: int = 1, node: int = 1) -> None:
        """Three nodes would have to be registered for it."""

    def registered(self) -> set[int]:
        """Returns the nodes that are registered in the metadata of any node."""
        images = [process.image for process in self.cluster.processes.values() if process.image is not None]
        return {node for image in images for node in image.brokers}


@pytest.mark.parametrize("entries", [0, 1])
@pytest.mark.parametrize("seed", range(1, 4))
def test_a_node_that_lost_its_vote_before_it_was_registered_finds_the_controller(seed: int, entries: int) -> None:
    """A node that loses its vote before it is registered finds the controller, and registers.

    It still believes that it is a voter, but is no longer a member: no node accepts it or contacts it.
    """
    forming = Forming(seed)
    nodes = forming.cluster.processes
    forming.until(lambda: all(METADATA_GROUP in process.replicas for process in nodes.values()), 5)
    late = next(node for node in nodes if node != forming.led_by(METADATA_GROUP))
    if entries:
        forming.until(lambda: forming.replicas_of(METADATA_GROUP)[late].last_id.index >= entries, 5)
    for node in nodes:
        forming.cluster.network.cut(node, late)
        forming.cluster.network.cut(late, node)
    others = set(nodes) - {late}
    forming.until(lambda: forming.registered() >= others, 10)
    assert late not in forming.registered()
    leader = forming.led_by(METADATA_GROUP)
    assert leader is not None
    raft = forming.replicas_of(METADATA_GROUP)[leader]
    end = forming.scheduler.now + 20 * SECOND
    while set(raft.configuration.members) != others:
        # Refused while the cluster has just formed.
        assert forming.scheduler.now < end, "it still votes"
        request = admin_pb2.AlterQuorumRequest(remove=(late,), timeout_ms=500)
        forming.cluster.request("admin", min(others), request, lambda answer: None)
        forming.run(0.5)
    forming.cluster.network.heal()
    forming.until(lambda: late in forming.registered(), 10)
