"""Each event of the runbook (docs/operate/operations.md) on real nodes: its commands print what the page shows.

The rules are in `tests/support/runbook_page.py`.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from command_line import PATIENCE_S, cli, cli_here, complaints, until
from former_version import LEVEL_1
from machines import Machines
from runbook_page import PAGE, Runbook, headings
from test_damaged_node import flip_a_bit_of

from bench.compare import lay_out
from quorumlog.local import ClusterError
from quorumlog.sdk import Admin, Consumer, InvalidTimestampError, NewTopic, Producer, QuorumlogError, TopicPartition
from quorumlog.storage.inspection import Inspection

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

TOPIC = "orders"
#: Of each partition: as many batches are more than the checks at opening look at.
RECORDS = 120
RECORD_BYTES = 5_000
#: Which section each story plays.
PLAYED = {
    "Restart and upgrade",
    "Growing",
    "Shrinking",
    "Moving to other racks",
    "A lost disk",
    "A lost node",
    "A lost controller",
    "A full disk",
    "A wrong clock",
    "Damage",
}
#: What a node does before anything else: its clock is off by as many milliseconds as a file says. (`time.time` stays:
#: gRPC asks it how much time a call has left, of a deadline by the clock of the kernel.)
SHIFTED_CLOCK = """
import datetime, os, time

_ns, _now = time.time_ns, datetime.datetime.now

def _shift():
    with open(os.environ["SHIFT_FILE"]) as file:
        return int(file.read())

class _Times(type(datetime.datetime)):
    def __instancecheck__(cls, value):
        return isinstance(value, _Real)

_Real = datetime.datetime

class _Shifted(_Real, metaclass=_Times):
    @classmethod
    def now(cls, tz=None):
        return _now(tz) + datetime.timedelta(milliseconds=_shift())

datetime.datetime = _Shifted
time.time_ns = lambda: _ns() + _shift() * 1_000_000
"""


def values(partition: int) -> list[bytes]:
    rng = random.Random(partition)
    return [b"%d-%d-" % (partition, number) + rng.randbytes(RECORD_BYTES) for number in range(RECORDS)]


@contextmanager
def on_machines(nodes: int, *, in_batches: bool = False, **how: Any) -> Iterator[Machines]:
    """Machines, three of which have a topic with records: partition 0 prefers node 1, partition 1 node 2, and so on.

    Arguments:
        in_batches: each record is a batch.
    """
    with Machines(nodes, up=3, **how) as machines:
        servers = machines.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([NewTopic(TOPIC, replica_assignments={0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]})])
        with Producer(bootstrap_servers=servers, linger_ms=0, compression_type=None) as producer:
            for partition in range(3):
                for value in values(partition):
                    sent = producer.send(TOPIC, value, partition=partition)
                    if in_batches:
                        sent.result(PATIENCE_S)
                sent.result(PATIENCE_S)
        until(lambda: is_healthy(machines), "all is well")
        yield machines


def is_healthy(machines: Machines) -> bool:
    return cli_here(machines.cluster, "cluster", "health").returncode == 0


def nodes(machines: Machines) -> list[int]:
    return [row["node_id"] for row in json.loads(cli_here(machines.cluster, "nodes", "list", "-o", "json").stdout)]


def test_every_section_with_commands_is_played() -> None:
    assert set(headings(PAGE.read_text())) == PLAYED


def test_a_lost_disk() -> None:
    with on_machines(3) as machines:
        machines.is_lost(3)
        shutil.rmtree(machines.data_dir(3))
        page = Runbook("A lost disk", machines)
        page.types_next()
        page.types_next()
        page.types_next()
        page.ends()


def test_a_lost_node() -> None:
    with on_machines(4) as machines:
        machines.is_lost(3)
        page = Runbook("A lost node", machines)
        page.types_next()
        page.types_next()
        page.types_next()
        page.ends()


def test_a_lost_controller() -> None:
    with on_machines(4) as machines:
        machines.start(4)
        machines.cluster.wait_ready()
        machines.is_lost(3)
        page = Runbook("A lost controller", machines)
        page.types_next()
        page.types_next()
        page.types_next()
        page.types_next()
        page.ends()


def test_damage() -> None:
    """A bit of the newest entry of a partition on node 2, and half of node 3's storage."""
    with on_machines(3, in_batches=True) as machines:
        with Admin(bootstrap_servers=machines.bootstrap_servers) as admin:
            [topic] = admin.describe_topics([TOPIC])
        machines.stop(2)
        with Inspection(machines.data_dir(2)) as inspection:
            newest = list(inspection.entries(topic.partitions[0].group_id))[-1]
        flip_a_bit_of(machines.data_dir(2), newest, values(0)[-1])
        page = Runbook("Damage", machines)
        page.types_next()
        # Node 2 can lead the partition once its replica is whole again; before that no other may be lost.
        with Admin(bootstrap_servers=machines.bootstrap_servers) as admin:
            admin.reassign_partitions({TopicPartition(TOPIC, 0): [2, 1, 3]})
        until(lambda: leads_after_balancing(machines, 2, partition=0), "its replica is whole")
        machines.stop(3)
        data_file = machines.data_dir(3) / "data.mdb"
        os.truncate(data_file, data_file.stat().st_size // 2)
        with pytest.raises(ClusterError):
            machines.start(3)
        page.types_next()
        page.types_next()
        page.types_next()
        page.ends()


def test_a_full_disk() -> None:
    """The storage may take as little as is full soon, which is as good as a small disk."""
    settings = {"storage_map_size_bytes": 24 << 20, "storage_reserve_bytes": 1 << 20}
    with on_machines(3, settings=settings) as machines:
        filling = random.Random(1)
        with Producer(
            bootstrap_servers=machines.bootstrap_servers, linger_ms=0, compression_type=None, delivery_timeout_ms=3_000
        ) as producer:

            def is_full() -> bool:
                try:
                    for future in [producer.send(TOPIC, filling.randbytes(50_000), partition=0) for _ in range(10)]:
                        future.result(PATIENCE_S)
                except QuorumlogError:
                    return True
                return False

            until(is_full, "the disk is full")
        page = Runbook("A full disk", machines)
        page.types_next()
        page.types_next()
        page.types_next()
        page.ends()


def test_a_wrong_clock(tmp_path: Path) -> None:
    """Node 2 is two hours behind, and later as many weeks ahead."""
    (tmp_path / "sitecustomize.py").write_text(SHIFTED_CLOCK)
    shift = tmp_path / "shift"
    sets_clock(shift, "-7200000")
    environment = {"PYTHONPATH": str(tmp_path), "SHIFT_FILE": str(shift)}
    # Only where it leads does its clock count: no leadership shall come to it because the machine is busy.
    with on_machines(3, settings={"election_timeout_ms": 3_000}) as machines:
        machines.environment[2] = environment
        leads_again(machines, 2)
        sets_clock(shift, "0")
        with Producer(bootstrap_servers=machines.bootstrap_servers) as producer:
            # It needs no restart for that.
            producer.send(TOPIC, b"now", partition=1).result(PATIENCE_S)
        sets_clock(shift, "-7200000")
        # On a busy machine the leadership may go elsewhere for a moment, and whose clock is right takes the record.
        until(lambda: leads_after_balancing(machines, 2) and refuses_now(machines), "it leads, and is behind")
        page = Runbook("A wrong clock", machines, {"chronyc makestep": lambda _node: sets_clock(shift, "0")})
        page.types_next()
        page.types_next()
        page.types_next()
        page.ends()
        # Ahead by more than topics keep records by default: no client is notified, and only what it leads is deleted.
        sets_clock(shift, str(2 * 7 * 86_400_000))
        leads_again(machines, 2)
        with Admin(bootstrap_servers=machines.bootstrap_servers) as admin:
            until(lambda: log_starts(machines)[1] >= RECORDS, "retention deletes what is young")
            assert [log_starts(machines)[partition] for partition in (0, 2)] == [0, 0]
            assert not [node for node in admin.describe_nodes() if getattr(node, "reason", "")]


def sets_clock(shift: Path, milliseconds: str) -> None:
    """Put the new figure in the old one's place: a node may be reading, and never meets half a file."""
    fresh = shift.with_suffix(".new")
    fresh.write_text(milliseconds)
    fresh.replace(shift)


def leads_again(machines: Machines, node: int) -> None:
    """A node is started again, and leads what it prefers to lead."""
    machines.stop(node)
    machines.start(node)
    until(lambda: is_healthy(machines), "all is well")
    until(lambda: leads_after_balancing(machines, node), "it leads")


def leads_after_balancing(machines: Machines, node: int, partition: int | None = None) -> bool:
    cli_here(machines.cluster, "leaders", "balance")
    return machines.cluster.leader(TOPIC, node - 1 if partition is None else partition) == node


def refuses_now(machines: Machines) -> bool:
    with Producer(bootstrap_servers=machines.bootstrap_servers) as producer:
        return isinstance(producer.send(TOPIC, b"now", partition=1).exception(PATIENCE_S), InvalidTimestampError)


def log_starts(machines: Machines) -> list[int]:
    with Consumer(bootstrap_servers=machines.bootstrap_servers) as consumer:
        starts = consumer.beginning_offsets([TopicPartition(TOPIC, number) for number in range(3)])
    return [start for _, start in sorted(starts.items())]


def test_restart_and_upgrade(tmp_path: Path) -> None:
    former = lay_out(LEVEL_1, tmp_path)
    if former is None:
        pytest.skip(f"this checkout does not have commit {LEVEL_1}: fetch its whole history")
    with on_machines(3, environment={"PYTHONPATH": str(former)}) as machines:
        install = {"/opt/quorumlog/bin/pip install": lambda node: machines.environment[node].pop("PYTHONPATH")}
        page = Runbook("Restart and upgrade", machines, install)
        page.types_next()
        page.types_next()
        for node in (2, 3):
            page.types_again(0, {1: node})
        page.types_next()
        page.ends()


def test_growing_and_shrinking() -> None:
    with on_machines(5) as machines:
        with Admin(bootstrap_servers=machines.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("payments", replica_assignments={number: [1, 2, 3] for number in range(7)})])

            def are_known() -> bool:
                loads = admin.rebalance_partitions(validate_only=True).loads
                return all(load.size_bytes > 3 * RECORDS * RECORD_BYTES // 2 for load in loads)

            until(are_known, "leaders have reported to the controller how large their partitions are")
        page = Runbook("Growing", machines)
        page.types_next()
        page.types_next()
        page.types_next()
        page.ends()
        page = Runbook("Shrinking", machines)
        page.types_next()
        page.types_next()
        page.ends()


def test_moving_to_other_racks() -> None:
    with on_machines(6, racks="abcdef") as machines:
        page = Runbook("Moving to other racks", machines)
        page.types_next()
        for old, new in ((2, 5), (3, 6)):
            machines.start(new)
            machines.is_let_in(new)
            moved = cli(machines.cluster, "nodes", "replace", str(old), "--with", str(new))
            assert (moved.returncode, complaints(moved)) == (0, ""), moved.stderr
            machines.stop(old)
            until(
                lambda gone=old: cli_here(machines.cluster, "nodes", "remove", str(gone)).returncode == 0,
                "it is removed",
            )
        page.types_next()
        page.ends()
        until(lambda: nodes(machines) == [4, 5, 6], "the others are gone from the list")
