"""Log of refused nodes: each reason once, repeatedly in the audit log while it persists, and always bounded."""

from __future__ import annotations

from quorumlog.server.step.events import AuditLine, PeerIdentity
from quorumlog.server.transport.peers.refused_peers import AGAIN_S, LINES_IN_A_ROW, MAX_REFUSED, RefusedPeers


class Told:
    """Refused nodes, on a clock of its own."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.log: list[dict[str, object]] = []
        self.audit: list[AuditLine] = []
        self.peers = RefusedPeers(self, self.audit.append, lambda: self.now_s)  # type: ignore[arg-type]

    def info(self, event: str, **fields: object) -> None:
        assert event == "peer_refused"
        self.log.append(fields)

    def refuse(self, node: int = 3, reason: str = "another cluster", address: str = "127.0.0.1:9") -> str:
        peer = PeerIdentity("cluster", node, "directory", 1, address)
        return self.peers.refused(peer, "10.0.0.7", "Node:2", reason)


def test_a_reason_is_told_once_and_in_the_audit_log_again_while_it_goes_on() -> None:
    reported = Told()
    for _ in range(50):
        reported.refuse()
        reported.now_s += 1
    assert (len(reported.log), len(reported.audit)) == (1, 1)
    reported.now_s += AGAIN_S
    reported.refuse()
    assert len(reported.log) == 1
    assert [line.fields["times"] for line in reported.audit] == [1, 50]
    assert reported.audit[0].fields == {
        "principal": "Node:2",
        "host": "10.0.0.7",
        "peer": 3,
        "reason": "another cluster",
        "times": 1,
    }


def test_another_reason_and_a_refusal_after_a_welcome_are_news() -> None:
    reported = Told()
    reported.refuse()
    reported.refuse(reason="removed")
    reported.peers.accepted(3)
    reported.refuse(reason="removed")
    assert [line["reason"] for line in reported.log] == ["another cluster", "removed", "removed"]
    assert len(reported.audit) == 3


def test_strangers_who_come_in_masses_fill_neither_log_nor_memory() -> None:
    reported = Told()
    for number in range(10 * LINES_IN_A_ROW):
        assert len(reported.refuse(number, f"{number} is not known" + "!" * 10_000)) == 500
    assert len(reported.log) == len(reported.audit) == LINES_IN_A_ROW
    assert len(reported.peers) == MAX_REFUSED
    for second in range(1, 11):
        reported.now_s += 1
        for number in range(50):
            reported.refuse(100_000 + 100 * second + number)
    assert len(reported.log) == LINES_IN_A_ROW + 10, "one in a second"
    assert reported.log[LINES_IN_A_ROW]["others_before"] == 9 * LINES_IN_A_ROW
    assert reported.log[LINES_IN_A_ROW + 1]["others_before"] == 49


def test_what_a_stranger_calls_its_address_is_not_told_without_end() -> None:
    reported = Told()
    reported.refuse(address="x" * 1_000_000)
    assert len(str(reported.log)) + len(str(reported.audit)) < 2_000
