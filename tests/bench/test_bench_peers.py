"""The benchmark of peers, without any peer: what is compared, who is left out, and that nothing is left behind."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from bench.peers import command, kafka, nats
from bench.peers.artifacts import JarSet, differences, jar_digests, parse_checksums
from bench.peers.client_process import run_client
from bench.peers.clients.kill_watch import KillWatch
from bench.peers.clients.target import Target
from bench.peers.loads import COUNTS, loads
from bench.peers.ours import OURS
from bench.peers.peer import Kind, Peer, RunningServers
from bench.peers.readings import Reading, markdown, rows_of
from bench.peers.server_processes import PeerError, ServerProcesses
from bench.peers.turns import measure

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 90.0


def peer(product: str, missing: str = "", reserved: str = "") -> Peer:
    return dataclasses.replace(OURS, product=product, name=product, missing=lambda: missing, reserved=reserved)


def test_a_line_has_the_median_of_its_rounds_and_stands_beside_the_first_side() -> None:
    readings = [Reading("produce", "records/s", side, value) for value in (3, 1, 2) for side in ("ours", "theirs")]
    readings += [Reading("produce", "records/s", "theirs", 100.0)]
    ours, theirs = rows_of(readings)
    assert (ours.side, ours.median, ours.lowest, ours.highest, ours.ratio) == ("ours", 2, 1, 3, 1)
    assert (theirs.side, theirs.median, theirs.highest, theirs.ratio) == ("theirs", 2.5, 100, 1.25)


def test_the_documentations_table_says_once_what_is_compared() -> None:
    rows = rows_of([Reading("memory", "MiB", "ours", 5.0), Reading("memory", "MiB", "theirs", 1234.0)])
    assert markdown(rows).splitlines()[2:] == [
        "| memory (MiB) | ours | 5.00 | 5.00-5.00 | 1.00 |",
        "|  | theirs | 1,234 | 1,234-1,234 | 246.80 |",
    ]


def test_a_figure_of_nothing_has_no_ratio() -> None:
    rows = rows_of([Reading("given up", "records", side, value) for side, value in (("ours", 0.0), ("theirs", 4.0))])
    assert [row.ratio for row in rows] == [None, None]


def test_a_peer_that_is_not_installed_is_named_with_what_to_install() -> None:
    present, left_out = command.choose([OURS, peer("kafka", missing="jars"), peer("nats")], [])
    assert [one.product for one in present] == ["quorumlog", "nats"]
    assert left_out == {"kafka": "install jars"}


def test_a_peer_with_a_reservation_is_measured_only_where_it_is_asked_for() -> None:
    peers = [OURS, peer("rabbitmq", reserved="it listens everywhere")]
    present, left_out = command.choose(peers, [])
    assert [one.product for one in present] == ["quorumlog"]
    assert left_out == {"rabbitmq": "it listens everywhere; --only rabbitmq measures it all the same"}
    assert command.choose(peers, ["rabbitmq"]) == (peers, {})


def test_only_leaves_ours_and_what_it_names() -> None:
    present, left_out = command.choose([OURS, peer("kafka", missing="jars"), peer("nats")], ["nats"])
    assert ([one.product for one in present], left_out) == (["quorumlog", "nats"], {})


def test_without_its_program_a_peer_says_which_package_has_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "nats-server (Debian: apt-get install nats-server)" in nats.missing()


def test_every_size_is_produced_and_consumed_and_the_leader_is_killed_last() -> None:
    found = loads(0.01)
    for kind in (Kind.PRODUCE, Kind.CONSUME):
        assert {load.size for load in found if load.kind is kind} == set(COUNTS)
    assert found[-1].kind is Kind.STEADY
    assert {load.size for load in loads(1, (100,)) if load.kind in (Kind.PRODUCE, Kind.CONSUME)} == {100}


def test_loads_that_nobody_has_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--loads", "drink", "--work-dir", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("bench: error: --loads 'drink' is in none of: produce 100 B, 1 partition;")


@pytest.mark.parametrize("known", command.PEERS, ids=lambda known: known.name)
def test_a_peer_has_one_client_while_its_leader_is_killed_and_says_its_settings(known: Peer) -> None:
    assert len(known.sides_of(Kind.STEADY)) == 1
    assert known.settings
    for kind in Kind:
        names = [side.name for side in known.sides_of(kind)]
        assert len(names) == len(set(names)), "two sides would be one line of the report"


def test_brokers_listen_on_loopback_alone_and_know_each_other(tmp_path: Path) -> None:
    files = kafka.write_properties(tmp_path, [1, 2, 3, 11, 12, 13], {"broker.session.timeout.ms": "2000"})
    lines = dict(line.split("=", 1) for line in files[2].read_text().splitlines())
    assert lines["listeners"] == "PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:12"
    assert lines["controller.quorum.voters"] == "1@127.0.0.1:11,2@127.0.0.1:12,3@127.0.0.1:13"
    assert (lines["node.id"], lines["broker.session.timeout.ms"]) == ("2", "2000")


def test_jars_other_than_the_pinned_ones_are_named(tmp_path: Path) -> None:
    for name, content in (("same.jar", b"1"), ("changed.jar", b"2"), ("new.jar", b"3")):
        (tmp_path / name).write_bytes(content)
    digests = {"same.jar": hashlib.sha256(b"1").hexdigest(), "changed.jar": "0" * 64, "gone.jar": "0" * 64}
    pinned = parse_checksums("".join(f"{digest}  {name}\n" for name, digest in digests.items()))
    assert differences(pinned, jar_digests(tmp_path)) == [
        "gone.jar is absent",
        "new.jar is not pinned",
        "changed.jar has another checksum",
    ]


def test_jars_that_were_never_downloaded_are_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("bench.peers.artifacts.HOME", tmp_path)
    assert kafka.JARS.missing().startswith("jars of kafka_2.13 4.3.1 (make bench-peers downloads them")


def test_without_maven_the_download_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("bench.peers.artifacts.HOME", tmp_path)
    with pytest.raises(PeerError, match="apt-get install maven"):
        JarSet("kafka", "org.apache.kafka", "kafka_2.13", "4.3.1").download()


def test_servers_end_with_the_context_and_leave_no_file(tmp_path: Path) -> None:
    with ServerProcesses(tmp_path, "Sleeper") as processes:
        processes.start("sleeper", ["sleep", "600"])
        pid = processes.pid("sleeper")
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)
    assert not list(tmp_path.iterdir())


def test_servers_end_with_whoever_started_them_even_if_that_is_killed(tmp_path: Path) -> None:
    program = (
        "from bench.peers.server_processes import ServerProcesses; from pathlib import Path; import os\n"
        f"processes = ServerProcesses(Path({str(tmp_path)!r}), 'Sleeper'); processes.start('one', ['sleep', '600'])\n"
        "print(processes.pid('one'), flush=True); os._exit(0)"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    deadline = time.monotonic() + DEADLINE_S
    while psutil.pid_exists(int(ended.stdout)) or list(tmp_path.iterdir()):
        assert time.monotonic() < deadline, "a server or its directory outlived its starter"
        time.sleep(0.02)


def test_a_server_that_ends_by_itself_is_told_with_its_last_words(tmp_path: Path) -> None:
    program = "print('no licence'); print('  at line 1'); raise SystemExit(1)"
    with ServerProcesses(tmp_path, "Store") as processes:
        processes.start("one", [sys.executable, "-c", program])
        with pytest.raises(PeerError, match="Store: one has ended: no licence"):
            processes.wait_until("sign of life", lambda: False)


def test_a_client_that_fails_is_told_in_one_line() -> None:
    with pytest.raises(PeerError, match=r"ours: nonsense failed: AttributeError: .*nonsense"):
        run_client("ours", "nonsense", Target("127.0.0.1:1", "t"))


def test_the_load_goes_on_until_a_record_sent_after_the_kill_is_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[0])
    monkeypatch.setattr("sys.stdin", io.StringIO())
    watch = KillWatch()
    watch.acknowledged(0)
    now[0] = 10_000_000_000
    monkeypatch.setattr(watch, "_killed_ns", now[0])
    now[0] += 60_000_000_000
    watch.acknowledged(sent_ns=9_000_000_000)
    assert not watch.over(), "that one was sent before the kill"
    watch.acknowledged(sent_ns=11_000_000_000)
    assert not watch.over(), "it has continued for too short a time"
    now[0] += 3_000_000_000
    assert watch.over()
    assert watch.result()["back"]


def test_a_peer_that_never_comes_back_ends_the_load_too(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = KillWatch()
    monkeypatch.setattr(watch, "_killed_ns", 1)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 100_000_000_000)
    assert watch.over()
    assert not watch.result()["back"]


def test_a_peer_that_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    @contextmanager
    def failing(work_dir: Path) -> Iterator[RunningServers]:
        raise PeerError("no licence")
        yield

    @contextmanager
    def idle(work_dir: Path) -> Iterator[RunningServers]:
        turns.append(work_dir)
        yield None  # type: ignore[misc]

    turns: list[Path] = []
    peers = [
        dataclasses.replace(OURS, name=name, start=start, sides=()) for name, start in (("A", failing), ("B", idle))
    ]
    readings, failures = measure(peers, loads(0.001), 2, tmp_path, lambda line: None)
    assert (readings, turns) == ([], [tmp_path, tmp_path])
    assert failures == ["round 1, A: no licence", "round 2, A: no licence"]


def test_without_its_jars_sparks_own_format_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.peers.artifacts.HOME", tmp_path)
    assert command.main(["--spark", "--work-dir", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("bench: error: Spark's Kafka format is left out: install jars of kafka_2.13")
    assert "spark-sql-kafka-0-10_2.13" in said
    assert said.count("\n") == 1


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_a_turn_of_our_own_reads_everything_off(tmp_path: Path) -> None:
    readings, failures = measure([OURS], loads(0.001, (100,)), 1, tmp_path, lambda line: None)
    assert failures == []
    assert {reading.what for reading in readings} == {
        "produce 100 B, 1 partition",
        "produce 100 B, 1 partition, processor time of the servers",
        "consume 100 B, 1 partition",
        "consume 100 B, 1 partition, processor time of the servers",
        "one record of 1 KiB at a time, p50",
        "one record of 1 KiB at a time, p99",
        "private memory of a server, median of three",
        "leader killed (SIGKILL), longest gap between acknowledgements",
        "leader killed, records given up by the client",
    }
    given_up = [reading.value for reading in readings if reading.unit == "records"]
    assert given_up == [0]
    assert not list(tmp_path.iterdir())


def test_a_report_without_peers_is_written_with_who_was_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "PEERS", (OURS, peer("kafka", missing="jars (make bench-peers)")))
    monkeypatch.setattr(command, "measure", lambda *_: ([Reading("memory", "MiB", "quorumlog", 5.0)], []))
    report = tmp_path / "report.json"
    assert command.main(["--json", str(report), "--work-dir", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("kafka is left out: install jars (make bench-peers)") == 2
    assert "quorumlog" in printed
    written = json.loads(report.read_text())
    assert (written["left_out"], written["rows"][0]["median"]) == ({"kafka": "install jars (make bench-peers)"}, 5.0)
