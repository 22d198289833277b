"""Names of producers that are deleted: what the partitions forget, and that nothing is appended twice for it."""

from __future__ import annotations

from quiet_cluster import SECOND, Quiet
from sequenced_client import SequencedClient, log_of, make_leader, tables_of

from quorumlog.server.config.options import BalanceOptions
from quorumlog.server.metadata.producer_names import NamedProducers
from quorumlog.server.partition.producer_table import FORGOTTEN_ROW, NAMED_APART_ROW
from quorumlog.v1 import admin_pb2
from quorumlog.v1.errors_pb2 import ErrorCode


class Deleting(Quiet):
    """A quiet cluster, whose partition is led by a node that is not the controller, nor the one that is cut off."""

    def __init__(self) -> None:
        super().__init__(5, balance=BalanceOptions(enabled=False))
        self.until(lambda: len(self.groups()) == 1 and self.led_by(self.groups()[0]) is not None, 5)
        (self.group,) = self.groups()
        self.controller = self.led_by(0)
        assert self.controller is not None
        self.leading, self.other = (node for node in self.cluster.node_ids if node != self.controller)
        make_leader(self, self.group, self.leading)

    def names(self, node: int) -> NamedProducers:
        """The names as a node has them."""
        image = self.cluster.processes[node].image
        assert image is not None
        return image.named_producers

    def cut_off_from_metadata(self, node: int) -> None:
        """Cuts a node off from the controller, but not from the partition's other replica."""
        assert self.controller is not None
        self.cluster.network.cut(self.controller, node)
        self.cluster.network.cut(node, self.controller)

    def delete(self, name: str, node: int) -> None:
        """Deletes a name by way of a node."""
        answers: list[object] = []
        request = admin_pb2.DeleteProducersRequest(names=[name], timeout_ms=2_000)
        self.cluster.request("admin", node, request, answers.append)
        self.until(lambda: bool(answers), 5)
        (answer,) = answers
        assert isinstance(answer, admin_pb2.DeleteProducersResponse)
        assert [result.error.code for result in answer.results] == [ErrorCode.NONE]

    def remembering(self) -> list[int]:
        """The nodes whose replica remembers a named producer."""
        machines = {node: process.replicas[self.group].machine for node, process in self.cluster.processes.items()}
        return [node for node, machine in machines.items() if machine.producers.has_named]  # type: ignore[attr-defined]

    def heal(self) -> None:
        """Restores all connections, and waits until all nodes have the same deletions."""
        self.cluster.heal()
        self.until(lambda: len({self.names(node).deleted_index for node in self.cluster.node_ids}) == 1, 5)


def test_a_leader_that_has_not_heard_of_a_deletion_appends_nothing_twice() -> None:
    quiet = Deleting()
    client = SequencedClient(quiet, "etl")
    assert client.sent("a", 0).error.code == ErrorCode.NONE
    quiet.cut_off_from_metadata(quiet.other)
    quiet.delete("etl", quiet.leading)
    quiet.until(lambda: not {quiet.leading, quiet.other} & set(quiet.remembering()), 2)
    make_leader(quiet, quiet.group, quiet.other)
    assert not quiet.names(quiet.other).is_deleted(client.identity.producer_id)
    client.send(quiet.other, "a", 0)
    quiet.until(lambda: len(client.results["a"]) == 2, 2)
    assert client.results["a"][-1].error.code == ErrorCode.SERVER_BUSY
    assert client.results["a"][-1].error.retriable
    quiet.heal()
    assert client.sent("a", 0).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    again = SequencedClient(quiet, "etl")
    assert again.identity.producer_id == client.identity.producer_id + 1
    assert again.sent("b", 0).error.code == ErrorCode.NONE
    assert log_of(quiet, quiet.group) == ["a", "b"]


def test_a_new_leader_has_forgotten_what_the_last_one_had_not_heard_to_be_deleted() -> None:
    quiet = Deleting()
    client = SequencedClient(quiet, "etl", epoch=3)
    assert client.sent("a", 0).error.code == ErrorCode.NONE
    quiet.cut_off_from_metadata(quiet.leading)
    quiet.delete("etl", quiet.other)
    client.send(quiet.leading, "b", 1)
    quiet.until(lambda: bool(client.results.get("b")), 2)
    assert client.acknowledged("b") == [1], "as if it had come before the deletion"
    quiet.run(1)
    assert {quiet.leading, quiet.other} <= set(quiet.remembering())
    make_leader(quiet, quiet.group, quiet.other)
    quiet.until(lambda: not {quiet.leading, quiet.other} & set(quiet.remembering()), 2)
    quiet.heal()
    quiet.until(lambda: not quiet.remembering(), 2)
    assert client.sent("b", 1).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert [list(table) for table in tables_of(quiet, quiet.group)] == [[FORGOTTEN_ROW, NAMED_APART_ROW]] * 3
    assert log_of(quiet, quiet.group) == ["a", "b"]


def test_a_sleeping_partition_wakes_to_forget_and_sleeps_again() -> None:
    quiet = Deleting()
    kept, gone = SequencedClient(quiet, "kept"), SequencedClient(quiet, "gone")
    for number, client in enumerate((kept, gone)):
        assert client.sent(f"v{number}", 0).error.code == ErrorCode.NONE
    leader = quiet.replicas_of(quiet.group)[quiet.leading]
    quiet.until(lambda: leader.quiescent, 10)
    quiet.delete("gone", quiet.controller or 0)
    quiet.until(lambda: all(FORGOTTEN_ROW in table for table in tables_of(quiet, quiet.group)), 2)
    quiet.until(lambda: leader.quiescent, 10)
    last = leader.last_id
    quiet.run(10)
    assert leader.last_id == last, "there is nothing left to forget"
    assert leader.quiescent
    assert kept.sent("v2", 1).error.code == ErrorCode.NONE


def test_a_batch_behind_a_command_to_forget_is_forgotten_too() -> None:
    """A batch that follows the command to forget its producer in the log is forgotten too.

    A leader that crashes has appended the command. The next one does not have the deletion yet, and appends a batch
    while the command is not applied. Between the two, the applied state has no producer.
    """
    quiet = Quiet(7, nodes=1)
    (group,) = quiet.groups()
    process, client = quiet.cluster.processes[1], SequencedClient(quiet, "etl")
    assert client.sent("a", 0).error.code == ErrorCode.NONE
    # So that the next start but one has the claim, and not the deletion.
    process.die(silent=False)
    quiet.cluster.start(1)
    quiet.until(lambda: quiet.led_by(group) == 1, 2)
    assert client.sent("b", 1).error.code == ErrorCode.NONE

    def deleted() -> bool:
        image = process.image
        return image is not None and image.named_producers.is_deleted(client.identity.producer_id)

    def stall() -> None:
        process.disk.stalled_until = quiet.scheduler.now + SECOND // 5

    def command_is_durable() -> bool:
        return deleted() and process.disk.synced[group].last.index > before

    before = process.disk.synced[group].last.index
    quiet.cluster.request("admin", 1, admin_pb2.DeleteProducersRequest(names=["etl"], timeout_ms=2_000), lambda _: None)
    quiet.until(command_is_durable, 2)
    process.die(silent=False)
    quiet.cluster.start(1)
    # It leads once its vote is on disk, and commits nothing before the disk continues.
    process.disk.after_sync = stall
    quiet.until(lambda: quiet.led_by(group) == 1, 2)
    assert not deleted()
    client.send(1, "c", 2)
    quiet.until(lambda: bool(client.acknowledged("c")), 2)
    quiet.until(lambda: deleted() and not tables_of(quiet, group)[0].keys() - {FORGOTTEN_ROW, NAMED_APART_ROW}, 2)
    assert log_of(quiet, group) == ["a", "b", "c"]
