"""Named producers and the memory of producers through changes of leader, restarts and long silences."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from quiet_cluster import Quiet
from sequenced_client import SequencedClient, log_of, make_leader, tables_of

from quorumlog.v1 import admin_pb2
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1.errors_pb2 import ErrorCode


def quiet_cluster(seed: int = 3, partitions: int = 1, expiration_s: float = 86_400) -> Quiet:
    quiet = Quiet(seed, partitions, producer_id_expiration_s=expiration_s)
    quiet.until(
        lambda: len(quiet.groups()) == partitions and None not in [quiet.led_by(group) for group in quiet.groups()], 5
    )
    return quiet


def kill_the_leader(quiet: Quiet) -> None:
    (group,) = quiet.groups()
    old = quiet.led_by(group)
    assert old is not None
    quiet.cluster.processes[old].die(silent=True)
    quiet.until(lambda: quiet.led_by(group) not in (None, old), 5)
    quiet.cluster.start(old)
    quiet.run(2)


def restart_everybody(quiet: Quiet) -> None:
    for node in quiet.cluster.node_ids:
        quiet.cluster.processes[node].die(silent=True)
    for node in quiet.cluster.node_ids:
        quiet.cluster.start(node)
    quiet.until(lambda: bool(quiet.groups()) and quiet.led_by(quiet.groups()[0]) is not None, 10)
    quiet.run(2)


def outcome(result: pb.ProduceResult) -> tuple[int, int, int]:
    return result.error.code, result.base_offset, result.next_sequence


@pytest.mark.parametrize("trouble", [kill_the_leader, restart_everybody])
def test_a_replay_adds_nothing_goes_on_where_the_log_ends_and_must_be_equal(trouble: Callable[[Quiet], None]) -> None:
    quiet = quiet_cluster()
    (group,) = quiet.groups()
    first = SequencedClient(quiet, "query-1", epoch=5)
    for number in range(8):
        assert outcome(first.sent(f"v{number}", number)) == (0, number, number + 1)
    trouble(quiet)
    again = SequencedClient(quiet, "query-1", epoch=5)
    assert again.identity == first.identity
    for number in range(8):
        assert outcome(again.sent(f"v{number}", number)) == (0, number if number > 2 else -1, 8)
    assert again.sent("other", 4).error.code == ErrorCode.DUPLICATE_SEQUENCE_MISMATCH
    assert outcome(again.sent("v8", 8)) == (0, 8, 9)
    assert log_of(quiet, group) == [f"v{number}" for number in range(9)]
    quiet.run(2)
    tables = tables_of(quiet, group)
    assert tables[0] == tables[1] == tables[2]


def test_a_claim_fences_the_former_holder_everywhere() -> None:
    quiet = quiet_cluster(partitions=2)
    former = SequencedClient(quiet, "query-1")
    for partition in (0, 1):
        assert former.sent(f"a{partition}", 0, partition).error.code == ErrorCode.NONE
    latter = SequencedClient(quiet, "query-1")
    assert latter.identity.producer_id == former.identity.producer_id
    assert latter.identity.producer_epoch == former.identity.producer_epoch + 1
    quiet.run(1)
    assert latter.sent("b", 0).error.code == ErrorCode.NONE
    for partition in (0, 1):  # the new holder has not written to partition 1 yet
        assert former.sent(f"c{partition}", 1, partition).error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    with_older_epoch = SequencedClient(quiet, "query-1", epoch=0)
    assert with_older_epoch.identity.error.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert log_of(quiet, quiet.groups()[1]) == ["a1"]


def test_who_is_silent_for_long_is_forgotten_unless_it_has_a_name() -> None:
    quiet = quiet_cluster(expiration_s=4)
    (group,) = quiet.groups()
    silent, busy, named = SequencedClient(quiet), SequencedClient(quiet), SequencedClient(quiet, "query-1")
    for client in (silent, busy, named):
        assert client.sent(f"first{id(client)}", 0).error.code == ErrorCode.NONE
    for number in range(1, 9):
        quiet.run(1)
        assert busy.sent(f"busy{number}", number).error.code == ErrorCode.NONE
    assert silent.sent("late", 1).error.code == ErrorCode.UNKNOWN_PRODUCER_ID
    assert named.sent("named", 1).error.code == ErrorCode.NONE
    assert busy.sent("busy9", 9).error.code == ErrorCode.NONE
    quiet.run(10)
    tables = tables_of(quiet, group)
    assert tables[0] == tables[1] == tables[2]
    assert len(tables[0]) == 1 + 1  # the named producer's, and that those are counted apart
    leader = quiet.led_by(group)
    assert leader is not None
    last = quiet.replicas_of(group)[leader].last_id
    quiet.run(20)
    assert quiet.replicas_of(group)[leader].last_id == last, "an idle partition is left alone"


def test_a_producer_on_the_way_back_from_oblivion_begins_anew() -> None:
    quiet = quiet_cluster(expiration_s=2)
    (group,) = quiet.groups()
    client = SequencedClient(quiet)
    assert client.sent("a", 0).error.code == ErrorCode.NONE
    quiet.run(6)
    assert client.sent("b", 1).error.code == ErrorCode.UNKNOWN_PRODUCER_ID
    fresh = SequencedClient(quiet)
    assert fresh.sent("b", 0).error.code == ErrorCode.NONE
    restart_everybody(quiet)
    assert fresh.sent("c", 1).error.code == ErrorCode.NONE
    assert log_of(quiet, group) == ["a", "b", "c"]


def delete_everything(quiet: Quiet, topic_id: bytes) -> None:
    (group,) = quiet.groups()
    leader = quiet.led_by(group)
    assert leader is not None
    answers: list[object] = []
    request = admin_pb2.DeleteRecordsRequest(timeout_ms=2_000)
    request.partitions.add(topic_id=topic_id, partition=0, before_offset=-1)
    quiet.cluster.request("admin", leader, request, answers.append)
    quiet.until(lambda: bool(answers), 5)
    (answer,) = answers
    assert isinstance(answer, admin_pb2.DeleteRecordsResponse)
    assert answer.results[0].error.code == ErrorCode.NONE, answer


def test_producers_are_known_when_retention_has_removed_all_that_they_sent_also_by_who_was_given_a_snapshot() -> None:
    quiet = quiet_cluster()
    (group,) = quiet.groups()
    named, unnamed = SequencedClient(quiet, "query-1", epoch=5), SequencedClient(quiet)
    away = next(node for node in quiet.cluster.node_ids if node != quiet.led_by(group))
    quiet.cluster.processes[away].die(silent=True)
    for number in range(70):
        assert named.sent(f"v{number}", number).error.code == ErrorCode.NONE
    for number in range(7):
        assert unnamed.sent(f"u{number}", number).error.code == ErrorCode.NONE
    delete_everything(quiet, named.topic_id)
    quiet.run(5)
    quiet.cluster.start(away)
    quiet.run(5)
    assert quiet.replicas_of(group)[away].first_index > 70, "it has caught up with the log, not by a snapshot"
    restart_everybody(quiet)
    tables = tables_of(quiet, group)
    assert len(tables[0]) == 2 + 2 + 1  # each producer's row, two of digests, and that named ones are counted apart
    assert tables[0] == tables[1] == tables[2]
    make_leader(quiet, group, away)
    again = SequencedClient(quiet, "query-1", epoch=5)
    for number in range(70):
        assert again.sent(f"v{number}", number).error.code == ErrorCode.NONE
    assert again.sent("other", 3).error.code == ErrorCode.DUPLICATE_SEQUENCE_MISMATCH
    assert outcome(unnamed.sent("u0", 0)) == (0, -1, 0)
    assert outcome(unnamed.sent("u6", 6)) == (0, 76, 0)
    assert outcome(again.sent("v70", 70)) == (0, 77, 71)
    assert log_of(quiet, group) == ["v70"]
