"""``quorumlog groups`` against scripted coordinators: what is shown of groups with members, and what they forbid."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from scripted_cluster import TOPIC_ID, ScriptedCluster
from scripted_groups import ScriptedCoordinators, ScriptedGroup

from quorumlog.cli.main import main
from quorumlog.v1 import groups_pb2

Run = Callable[..., Awaitable[str]]


def member(
    name: str, assigned: list[int], target: list[int], instance_id: str = "", present: bool = True
) -> groups_pb2.MemberDescription:
    """A member that subscribes to topic ``t``."""
    return groups_pb2.MemberDescription(
        member_id=name,
        client_id=f"{name}-client",
        host="127.0.0.1",
        member_epoch=2,
        topics=["t"],
        assignment=[groups_pb2.TopicPartitions(topic_id=TOPIC_ID, topic="t", partitions=assigned)],
        target=[groups_pb2.TopicPartitions(topic_id=TOPIC_ID, topic="t", partitions=target)],
        instance_id=instance_id,
        present=present,
    )


@pytest_asyncio.fixture
async def script() -> AsyncIterator[ScriptedCoordinators]:
    """Topic ``t``: offsets 5 to 100 in two partitions; group ``busy`` works on it, ``idle`` has no members."""
    nodes = ScriptedCluster(nodes=3, partitions=2)
    for log in nodes.logs:
        log.log_start, log.next_offset = 5, 100
    made = ScriptedCoordinators(nodes)
    at = {0: groups_pb2.CommittedOffset(topic_id=TOPIC_ID, partition=0, offset=40, leader_epoch=3, metadata="m")}
    made.groups = {
        "busy": ScriptedGroup(members=[member("a", [0, 1], [0]), member("b", [], [1], instance_id="i")], offsets=at),
        "idle": ScriptedGroup(offsets=dict(at)),
    }
    await nodes.start()
    yield made
    await nodes.stop()


@pytest.fixture
def outcome(
    script: ScriptedCoordinators, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Awaitable[tuple[int, str, str]]]:
    """Runs a command: exit status, what it printed, what it complained of."""
    monkeypatch.setenv("QUORUMLOG_BOOTSTRAP_SERVERS", script.cluster.bootstrap_servers)

    def command(*arguments: str) -> int:
        with pytest.raises(SystemExit) as ended:
            main(["groups", *arguments])
        return ended.value.code if isinstance(ended.value.code, int) else 0

    async def run(*arguments: str) -> tuple[int, str, str]:
        status = await asyncio.to_thread(command, *arguments)
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.fixture
def run(outcome: Callable[..., Awaitable[tuple[int, str, str]]]) -> Run:
    """Runs a command that succeeds; returns what it printed."""

    async def command(*arguments: str) -> str:
        status, printed, complaint = await outcome(*arguments)
        assert (status, complaint) == (0, "")
        return printed

    return command


@pytest.fixture
def refuse(outcome: Callable[..., Awaitable[tuple[int, str, str]]]) -> Run:
    """Runs a command that fails; returns its one line of complaint."""

    async def command(*arguments: str) -> str:
        status, printed, complaint = await outcome(*arguments)
        assert (status, printed) == (1, "")
        [line] = complaint.splitlines()
        return line

    return command


def rows(table: str) -> list[list[str]]:
    """The cells of a table's lines, without the rule under the headings."""
    return [line.split() for line in table.splitlines() if line.strip(" ─")]


async def test_groups_are_listed_with_their_states(run: Run) -> None:
    assert rows(await run("list")) == [
        ["GROUP", "KIND", "STATE", "#MEMBERS"],
        ["busy", "Consumer", "Stable", "2"],
        ["idle", "Consumer", "Empty", "0"],
    ]
    listed = json.loads(await run("list", "--state", "stable,Reconciling", "--output", "json"))
    assert listed == [{"group": "busy", "kind": "Consumer", "state": "Stable", "members": 2}]
    assert await run("list", "--state", "dead") == "No group is dead.\n"


async def test_offsets_are_described_with_lag_and_reader(run: Run) -> None:
    table = rows(await run("describe", "busy"))
    assert table == [
        ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"],
        ["busy", "t", "0", "40", "100", "60", "a", "127.0.0.1", "a-client"],
        ["busy", "t", "1", "-", "100", "-", "a", "127.0.0.1", "a-client"],
    ]
    assert rows(await run("describe", "busy", "--offsets")) == table
    idle = rows(await run("describe", "idle"))
    assert idle[0] == ["Group", "idle", "has", "no", "active", "members."]
    assert idle[2] == ["idle", "t", "0", "40", "100", "60", "-", "-", "-"]
    [row] = json.loads(await run("describe", "idle", "--output", "json"))
    assert (row["lag"], row["consumer_id"], row["leader_epoch"], row["metadata"]) == (60, None, 3, "m")
    everything = json.loads(await run("describe", "--output", "json"))
    assert [(row["group"], row["partition"]) for row in everything] == [("busy", 0), ("busy", 1), ("idle", 0)]


@pytest.mark.parametrize(("start", "committed", "lag"), [(70, 40, 30), (100, 40, 0), (5, 107, 0)])
async def test_lag_counts_from_the_log_start(
    script: ScriptedCoordinators, run: Run, start: int, committed: int, lag: int
) -> None:
    """No reader can catch up on removed records, and a commit may be newer than the look at the end."""
    script.cluster.logs[0].log_start = start
    script.groups["idle"].offsets[0].offset = committed
    [row] = json.loads(await run("describe", "idle", "--output", "json"))
    assert (row["current_offset"], row["log_start_offset"], row["log_end_offset"]) == (committed, start, 100)
    assert row["lag"] == lag
    table = rows(await run("describe", "idle"))
    assert table[2] == ["idle", "t", "0", str(committed), "100", str(lag), "-", "-", "-"]


async def test_the_end_of_a_partition_without_a_leader_is_not_waited_for(
    script: ScriptedCoordinators, run: Run
) -> None:
    script.cluster.shown_leaders = [(-1, 2), (script.cluster.logs[1].leader, 1)]
    described = json.loads(await run("describe", "busy", "--output", "json"))
    assert [(row["log_end_offset"], row["lag"]) for row in described] == [(None, None), (100, None)]


async def test_members_are_described_and_what_they_have_when_asked(run: Run) -> None:
    assert rows(await run("describe", "busy", "--members")) == [
        ["GROUP", "CONSUMER-ID", "INSTANCE-ID", "HOST", "CLIENT-ID", "EPOCH", "#PARTITIONS"],
        ["busy", "a", "-", "127.0.0.1", "a-client", "2", "2"],
        ["busy", "b", "i", "127.0.0.1", "b-client", "2", "0"],
    ]
    verbose = rows(await run("describe", "busy", "--members", "--verbose"))
    assert [row[-2:] for row in verbose] == [["ASSIGNMENT", "TARGET"], ["t(0,1)", "t(0)"], ["-", "t(1)"]]
    assert await run("describe", "idle", "--members") == "Group idle has no active members.\n"
    members = json.loads(await run("describe", "busy", "--members", "--output", "json"))
    assert members[0]["assignment"] == {"t": [0, 1]}


async def test_the_state_names_the_coordinator(script: ScriptedCoordinators, run: Run) -> None:
    node = script.leaders[script.partition("busy")][0]
    port = script.cluster.nodes[node].port
    assert rows(await run("describe", "busy", "--state")) == [
        ["GROUP", "COORDINATOR", "ASSIGNMENT-STRATEGY", "STATE", "KIND", "GROUP-EPOCH", "#MEMBERS"],
        ["busy", f"127.0.0.1:{port}", f"({node})", "uniform", "Stable", "Consumer", "3", "2"],
    ]
    [idle] = json.loads(await run("describe", "idle", "--state", "--output", "json"))
    assert (idle["state"], idle["assignment_strategy"], idle["members"]) == ("Empty", None, 0)


async def test_a_classic_group_is_described_by_its_generation_and_its_parts(
    script: ScriptedCoordinators, run: Run
) -> None:
    part = b"\0\0\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\1\xff\xff\xff\xff"
    script.groups["busy"].classic_part = part
    [state] = json.loads(await run("describe", "busy", "--state", "--output", "json"))
    assert (state["kind"], state["group_epoch"], state["state"]) == ("Classic", 7, "PreparingRebalance")
    assert (state["assignment_strategy"], state["leader"], state["protocol_type"]) == ("range", "a", "consumer")
    members = json.loads(await run("describe", "busy", "--members", "--output", "json"))
    assert {member["consumer_id"]: member["assignment"] for member in members} == {
        "a": {"t": [0, 1]},
        "b": {"t": [0, 1]},
    }
    script.groups["busy"].classic_part = b"an unknown format"
    [first, _] = json.loads(await run("describe", "busy", "--members", "--output", "json"))
    assert first["assignment"] == {}


async def test_an_active_group_keeps_its_offsets_and_stays(refuse: Run, script: ScriptedCoordinators) -> None:
    line = await refuse("reset-offsets", "busy", "--topic", "t", "--to-earliest", "--execute")
    assert line == "quorumlog: group busy is active (Stable, 2 members): stop its members first"
    assert "stop its members" in await refuse("reset-offsets", "busy", "--all-topics", "--to-latest")
    assert "busy is active" in await refuse("delete", "idle", "busy", "--yes")
    script.groups["busy"].subscribed = True
    assert "group_subscribed_to_topic" in await refuse("delete-offsets", "busy", "--topic", "t")
    script.groups["busy"].members = [member("a", [0], [0], instance_id="i", present=False)]
    assert "waits for its static members i to return" in await refuse("delete", "busy", "--yes")
    assert script.groups["busy"].offsets[0].offset == 40
    assert script.count("CommitOffsets") == script.count("DeleteGroups") == 0


async def test_a_group_that_becomes_active_meanwhile_is_refused_by_its_coordinator(
    refuse: Run, script: ScriptedCoordinators
) -> None:
    busy = script.groups["busy"].members

    def join(asked: Any) -> None:
        if asked.method == "CommitOffsets":
            script.groups["idle"].members = busy

    script.refuse = join
    assert "'idle' has members" in await refuse("reset-offsets", "idle", "--all-topics", "--to-latest", "--execute")
