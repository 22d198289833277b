"""`make demo`: a three-node cluster on this machine loses its leader under load, and no data.

Three real node processes; a topic with three partitions on all of them; a load of records with keys, and a consumer
group of two members that works on them. While it runs, the node that coordinates the group and leads a partition is
killed with SIGKILL, others take over, the in-sync replicas shrink, the node returns and they grow again. Then every
record is read back twice: by a consumer and by PySpark.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from demo_group import Group
from demo_load import Load
from demo_spark import SparkCount, count_in_spark
from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

from quorumlog.local import ClusterError, LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, PartitionDescription, TopicPartition
from quorumlog.sdk.errors import QuorumlogError

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 3
RECORDS = 30_000
RECORDS_PER_S = 2_500
#: The leader is killed when this many records are acknowledged.
KILL_AFTER = 5_000
#: A change of leader or in-sync replicas that takes longer than this is a failure of the demo.
CHANGE_TIMEOUT_S = 30.0
POLL_S = 0.05

#: Leader and in-sync replicas by partition.
View = dict[int, tuple[int | None, tuple[int, ...]]]

console = Console(highlight=False)


class StoryError(Exception):
    """The demo did not go as expected. The message is one line."""


@dataclass(slots=True)
class Story:
    """The figures of the closing summary."""

    victim: int = 0
    partition: int = 0
    gaps_s: dict[int, float] = field(default_factory=dict)
    shrink_s: float = 0.0
    grow_s: float = 0.0
    consumed: int = 0
    worked_on: int = 0
    isr: dict[str, View] = field(default_factory=dict)

    @property
    def gap_s(self) -> float:
        """Seconds without an acknowledgement for the partition whose leader was killed."""
        return self.gaps_s[self.partition]


def main() -> int:
    """Runs the demo; returns the exit status."""
    signal.signal(signal.SIGTERM, _terminated)
    begin = time.monotonic()
    try:
        tell(begin)
    except (StoryError, ClusterError, QuorumlogError) as error:
        console.print(f"\n[bold red]the demo failed:[/] {error}")
        return 1
    except KeyboardInterrupt:
        console.print("\ninterrupted; the nodes are stopped and their data is removed")
        return 130
    return 0


def tell(begin: float) -> None:
    """Runs the demo from the first node to the summary, and always stops its processes and removes its files."""
    console.print(
        Panel(
            "[bold]quorumlog[/]: a Raft-replicated log store with Kafka's model, in Python.\n"
            "A three-node cluster is about to lose its leader, and nothing else.",
            box=box.ROUNDED,
            expand=False,
        )
    )
    story = Story()
    chapter("Three nodes, three processes")
    with contextlib.ExitStack() as leaving:
        with console.status("starting three nodes"):
            cluster = leaving.enter_context(LocalCluster(nodes=3))
        console.print(f"serving after {time.monotonic() - begin:.1f} s")
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            show_nodes(cluster, admin)
            chapter(f"A topic with {PARTITIONS} partitions, each on all three nodes")
            watch = TopicWatch(admin)
            create_topic(admin, watch)
            fail_over(cluster, admin, watch, story)
        chapter("Reading everything back")
        consume_all(cluster, story)
        chapter("The same records in PySpark (the first session takes a few seconds)")
        spark = read_in_spark(cluster)
    summarize(story, spark, time.monotonic() - begin)


def show_nodes(cluster: LocalCluster, admin: Admin) -> None:
    """Prints the cluster's nodes."""
    described = admin.describe_cluster()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("node", "process", "address", "role"):
        table.add_column(column)
    for broker in sorted(described.brokers, key=lambda broker: broker.node_id):
        role = "active controller" if broker.node_id == described.controller_id else "controller"
        table.add_row(
            f"{broker.node_id}", f"pid {cluster.pid(broker.node_id)}", f"{broker.host}:{broker.port}", f"{role}, broker"
        )
    console.print(table)


def create_topic(admin: Admin, watch: TopicWatch) -> None:
    """Creates the topic and prints the leader of each partition."""
    admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=3)])
    partitions = await_partitions(
        watch,
        "all partitions have a leader and three replicas in sync",
        lambda found: all(partition.leader is not None and len(partition.isr) == 3 for partition in found),
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("partition", "leader", "replicas", "in sync"):
        table.add_column(column)
    for partition in partitions:
        table.add_row(
            f"{TOPIC}-{partition.partition}",
            f"node {partition.leader}",
            nodes(partition.replicas),
            nodes(partition.isr),
        )
    console.print(table)


def fail_over(cluster: LocalCluster, admin: Admin, watch: TopicWatch, story: Story) -> None:
    """Kills a leader and restarts its node under load, and prints how leaders and in-sync replicas change."""
    chapter(f"{RECORDS:,} records with keys, a group of two that works on them, and a kill -9 in the middle")
    with (
        Group(cluster.bootstrap_servers, TOPIC, GROUP, members=2) as group,
        Load(cluster.bootstrap_servers, TOPIC, RECORDS, RECORDS_PER_S) as load,
        bar(load) as show,
    ):
        await_load(load, show, lambda: load.acknowledged >= KILL_AFTER and group.settled)
        hands = group.changes()
        before = watch.look()
        story.isr["before"] = snapshot(before)
        [described] = admin.describe_groups([GROUP])
        story.partition, story.victim = choose_victim(before, described.coordinator)
        coordinates = f" and coordinator of {GROUP}" if described.coordinator == story.victim else ""
        console.print(
            f"\n[bold red]kill -9 {cluster.pid(story.victim)}[/]   node {story.victim}, leader of"
            f" {TOPIC}-{story.partition}{coordinates}, after {load.acknowledged:,} acknowledged records"
        )
        killed = time.monotonic()
        cluster.kill(story.victim)
        during = await_partitions(
            watch,
            "the killed node has left the in-sync replicas and its partitions have new leaders",
            lambda found: all(
                partition.leader not in (None, story.victim) and story.victim not in partition.isr
                for partition in found
            ),
            lambda: show(load),
            killed,
        )
        story.shrink_s = time.monotonic() - killed
        story.isr["during"] = snapshot(during)
        console.print(
            f"\n[bold green]restart[/]   node {story.victim} on its old data,"
            f" after {load.acknowledged:,} acknowledged records"
        )
        restarted = time.monotonic()
        cluster.start(story.victim)
        after = await_partitions(
            watch,
            "the restarted node is in sync again",
            lambda found: all(len(partition.isr) == 3 for partition in found),
            lambda: show(load),
            restarted,
        )
        story.grow_s = time.monotonic() - restarted
        story.isr["after"] = snapshot(after)
        await_load(load, show, lambda: not load.running)
        check_group(group, hands, story)
    if load.error is not None:
        raise StoryError(f"the producer stopped: {load.error}")
    if load.acknowledged != RECORDS:
        raise StoryError(f"{load.acknowledged:,} of {RECORDS:,} records were acknowledged")
    story.gaps_s = {number: load.longest_gap_s(number, killed, restarted) for number in range(PARTITIONS)}
    show_isr(story)
    console.print(
        f"[bold]{RECORDS:,}[/] records sent, [bold]{load.acknowledged:,}[/] acknowledged, 0 failed;"
        f" {TOPIC}-{story.partition} was without a leader for [bold]{story.gap_s:.2f} s[/]"
    )


def choose_victim(partitions: list[PartitionDescription], coordinator: int) -> tuple[int, int]:
    """Chooses a partition and its leader; prefers the group's coordinator, if it leads a partition."""
    leaders = [(partition.partition, partition.leader) for partition in partitions if partition.leader is not None]
    if not leaders:
        raise StoryError("no partition has a leader")
    return next((found for found in leaders if found[1] == coordinator), leaders[0])


def check_group(group: Group, changes: int, story: Story) -> None:
    """Checks that each record was processed once, and that no partition moved to another member."""
    if not group.await_all(RECORDS, CHANGE_TIMEOUT_S):
        raise StoryError(
            f"the group has worked on {group.worked_on.total():,} records: {group.error or 'no more came'}"
        )
    worked_on = group.worked_on
    if len(worked_on) != RECORDS or worked_on.total() != RECORDS:
        raise StoryError(f"the group has worked on {worked_on.total():,} records, {len(worked_on):,} different ones")
    if group.changes() != changes:
        raise StoryError("partitions have changed hands although no member came or went")
    story.worked_on = worked_on.total()
    who = " and ".join(f"partition{'s' * (len(partitions) > 1)} {nodes(partitions)}" for partitions in group.partitions)
    console.print(
        f"group [bold]{GROUP}[/]: two members with {who}, [bold]{worked_on.total():,}[/] records worked on,"
        " 0 left out, 0 twice; no member's partitions have changed"
    )


def show_isr(story: Story) -> None:
    """Prints leaders and in-sync replicas before, during and after, and the longest gap between acknowledgements."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("partition")
    table.add_column("before: leader, in sync")
    table.add_column(f"node {story.victim} down")
    table.add_column("after")
    table.add_column("longest gap between acks", justify="right")
    for number in range(PARTITIONS):
        cells = []
        for moment in ("before", "during", "after"):
            leader, isr = story.isr[moment][number]
            style = "yellow" if len(isr) < 3 else "green"
            cells.append(f"node {leader}   [{style}]{nodes(isr)}[/]")
        gap = f"{story.gaps_s[number]:.2f} s"
        table.add_row(f"{TOPIC}-{number}", *cells, f"[bold]{gap}[/]" if number == story.partition else gap)
    console.print(table)


def consume_all(cluster: LocalCluster, story: Story) -> None:
    """Reads the topic from the beginning and compares it with the records sent."""
    begin = time.monotonic()
    values: Counter[bytes] = Counter()
    rows = []
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        where = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        consumer.assign(where)
        consumer.seek_to_beginning(*where)
        ends = consumer.end_offsets(where)
        last: dict[TopicPartition, bytes] = {}
        expected = dict.fromkeys(where, 0)
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            if time.monotonic() - begin > CHANGE_TIMEOUT_S:
                raise StoryError(f"only {values.total():,} records were read within {CHANGE_TIMEOUT_S:.0f} s")
            for partition, records in consumer.poll(timeout_ms=500, max_records=5_000).items():
                for record in records:
                    if record.offset != expected[partition]:
                        raise StoryError(
                            f"{partition}: offset {record.offset} came where {expected[partition]} was due"
                        )
                    if record.value <= last.get(partition, b""):
                        raise StoryError(f"{partition}: {record.value!r} came after {last[partition]!r}")
                    expected[partition] = record.offset + 1
                    last[partition] = record.value
                    values[record.value] += 1
        rows = [(partition.partition, end) for partition, end in sorted(ends.items())]
    seconds = time.monotonic() - begin
    story.consumed = values.total()
    lost = RECORDS - sum(1 for number in range(RECORDS) if f"order-{number:06d}".encode() in values)
    doubled = sum(count - 1 for count in values.values())
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("partition")
    table.add_column("records", justify="right")
    table.add_column("offsets", justify="right")
    for number, end in rows:
        table.add_row(f"{TOPIC}-{number}", f"{end:,}", f"0 to {end - 1:,}")
    console.print(table)
    if lost or doubled or story.consumed != RECORDS:
        raise StoryError(f"{story.consumed:,} records read of {RECORDS:,} sent: {lost} lost, {doubled} twice")
    console.print(f"[bold]{story.consumed:,}[/] records read in {seconds:.1f} s: 0 lost, 0 twice, no gap, order kept")


def read_in_spark(cluster: LocalCluster) -> SparkCount:
    """Counts the records in a real Spark session."""
    with console.status("starting Spark"):
        try:
            counted = count_in_spark(cluster.bootstrap_servers, TOPIC)
        except RuntimeError as error:
            raise StoryError(str(error)) from None
    console.print(f'[dim]spark.read.format("quorumlog").option("subscribe", "{TOPIC}").load()[/]')
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("partition")
    for column in ("count(*)", "count(DISTINCT value)", "max(offset)"):
        table.add_column(column, justify="right")
    for partition, rows, distinct, last in counted.partitions:
        table.add_row(f"{TOPIC}-{partition}", f"{rows:,}", f"{distinct:,}", f"{last:,}")
    console.print(table)
    if not counted.rows == counted.distinct == RECORDS:
        raise StoryError(f"Spark counts {counted.rows:,} rows, {counted.distinct:,} distinct; {RECORDS:,} were sent")
    console.print(f"[bold]{counted.rows:,}[/] rows in Spark = records sent")
    return counted


def summarize(story: Story, spark: SparkCount, seconds: float) -> None:
    """Prints the closing summary."""
    table = Table.grid(padding=(0, 2))
    for name, value in (
        ("records sent and acknowledged", f"{RECORDS:,}"),
        ("worked on by the group", f"{story.worked_on:,}  (0 left out, 0 twice)"),
        ("records consumed", f"{story.consumed:,}  (0 lost, 0 twice)"),
        ("rows in Spark", f"{spark.rows:,}"),
        ("without a leader after kill -9", f"{story.gap_s:.2f} s"),
        ("until the ISR had shrunk", f"{story.shrink_s:.1f} s after the kill"),
        ("until the ISR was whole again", f"{story.grow_s:.1f} s after the restart"),
        ("the whole story", f"{seconds:.0f} s"),
    ):
        table.add_row(name, f"[bold]{value}[/]")
    console.print()
    console.print(Panel(table, title="A leader lost, and nothing else", box=box.ROUNDED, expand=False))
    console.print("The nodes are stopped and their data is removed. Next: the five-minute tour in docs/use/tour.md.")


# -- waiting and looking ------------------------------------------------------------------------------------------


def await_partitions(
    watch: TopicWatch,
    what: str,
    condition: Callable[[list[PartitionDescription]], bool],
    after_check: Callable[[], None] = lambda: None,
    since: float | None = None,
) -> list[PartitionDescription]:
    """Waits until the partitions meet a condition, and returns them.

    Arguments:
        what: the condition, for the error message.
        after_check: called after each check.
        since: print changes of leaders and in-sync replicas, with the seconds since this time.
    """
    deadline = time.monotonic() + CHANGE_TIMEOUT_S
    known: View | None = None
    while True:
        found = watch.look()
        view = snapshot(found)
        if since is not None and known is not None:
            for line in changes(known, view):
                console.print(f"  {time.monotonic() - since:5.2f} s   {line}")
        known = view
        if found and condition(found):
            return found
        if time.monotonic() > deadline:
            raise StoryError(f"after {CHANGE_TIMEOUT_S:.0f} s it is still not so that {what}")
        after_check()
        time.sleep(POLL_S)


def changes(before: View, after: View) -> Iterator[str]:
    """Describes what has changed."""
    by_isr: dict[tuple[int, ...], list[str]] = {}
    for number, (leader, isr) in after.items():
        old_leader, old_isr = before[number]
        if leader != old_leader:
            yield f"{TOPIC}-{number} is led by " + ("nobody" if leader is None else f"[bold]node {leader}[/]")
        if isr != old_isr:
            by_isr.setdefault(isr, []).append(f"{TOPIC}-{number}")
    for isr, partitions in by_isr.items():
        yield f"in sync now: [bold]{nodes(isr)}[/]   ({', '.join(partitions)})"


def await_load(load: Load, show: Callable[[Load], None], condition: Callable[[], bool]) -> None:
    """Waits until the load meets a condition."""
    while not condition():
        if load.error is not None:
            raise StoryError(f"the producer stopped: {load.error}")
        show(load)
        time.sleep(POLL_S)
    show(load)


class TopicWatch:
    """The topic's partitions as the cluster reports them, never older than a report before: any node answers, and one
    that has just restarted may be behind."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._newest: dict[int, PartitionDescription] = {}

    def look(self) -> list[PartitionDescription]:
        """Returns the current partitions, by number."""
        [topic] = self._admin.describe_topics([TOPIC])
        for partition in topic.partitions:
            known = self._newest.get(partition.partition)
            if known is None or partition.partition_epoch >= known.partition_epoch:
                self._newest[partition.partition] = partition
        return [self._newest[number] for number in sorted(self._newest)]


def snapshot(partitions: list[PartitionDescription]) -> View:
    """Returns leader and ISR by partition."""
    return {partition.partition: (partition.leader, tuple(sorted(partition.isr))) for partition in partitions}


def nodes(ids: tuple[int, ...]) -> str:
    """Formats node ids like Kafka's tools."""
    return ",".join(str(node) for node in ids)


def chapter(title: str) -> None:
    """Prints a heading."""
    console.print(f"\n[bold cyan]{title}[/]")


@contextlib.contextmanager
def bar(load: Load) -> Iterator[Callable[[Load], None]]:
    """Shows a progress bar of acknowledged records, if on a terminal."""
    columns = (TextColumn("acknowledged"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task: TaskID = progress.add_task("", total=RECORDS)
        yield lambda load: progress.update(task, completed=load.acknowledged)


def _terminated(_signal: int, _frame: object) -> None:
    """Handles SIGTERM like Ctrl-C, so that the nodes are stopped."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
