"""Nodes register as the processes that they are, also where one follows another so soon that both are answered."""

from __future__ import annotations

import pytest
from quiet_cluster import SECOND, Quiet

from quorumlog.server.events import PeerFrame


def test_an_answer_to_the_former_process_registers_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ask before anything is decided. Taken for its own, the answer to the first would leave the second unknown:
    its heartbeats have the epoch that is known."""
    quiet = Quiet(1)
    quiet.until(lambda: quiet.led_by(0) is not None, 5)
    controller = quiet.led_by(0)
    victim = next(process for node, process in quiet.cluster.processes.items() if node != controller)
    asked: dict[int, set[int]] = {}
    answered: set[int] = set()
    send = quiet.cluster.network.send

    def noted(sender: int, receiver: int, frame: PeerFrame) -> None:
        if sender == victim.node_id:
            asked.setdefault(victim.life, set()).update(each.request_id for each in frame.controller_requests)
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
    first, second = (asked[life] for life in (victim.life - 1, victim.life))
    quiet.until(lambda: bool(first & answered), 2)
    quiet.run(2)
    assert victim.node is not None
    images = [process.image for process in quiet.cluster.processes.values() if process.image is not None]
    known = {image.brokers[victim.node_id].registration.boot_id for image in images}
    assert known == {victim.node.identity.boot_id}
    # Whichever of the first one's numbers was answered late, the second uses none of them.
    assert len(second) > len(first)
    assert not first & second
