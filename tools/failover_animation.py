"""Records a real failover and draws it as an animated SVG.

python tools/failover_animation.py --to docs/images/failover.svg

Three node processes; a producer sends a record every few milliseconds and notes when each is acknowledged. The leader
is killed with SIGKILL, and started again later. Afterwards the topic is read from its beginning: the picture states
what was lost and duplicated. Nothing in it is invented: positions, times and counts come from the recording.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, RecordFuture, TopicPartition

TOPIC = "orders"
SEND_EVERY_S = 0.004
#: The longest wait for a node to rejoin the in-sync replicas, and for the records to be acknowledged.
LIMIT_S = 60.0
#: Seconds of the recording before the kill, from the kill to the restart, and after the replica is in sync again.
BEFORE_S, DOWN_S, AFTER_S = 1.0, 1.5, 1.0
#: The animation is slower than reality, so that a gap of 0.1 s can be seen.
SLOWER = 3.0
WIDTH, HEIGHT, LEFT, RIGHT = 760, 300, 24, 24


@dataclass(slots=True)
class State:
    """The partition at a moment, as a client sees it.

    Arguments:
        at_s: since the start of the recording.
        leader: its node id, or None while none is known.
        in_sync: node ids of the in-sync replicas.
        running: node ids of the processes that run.
    """

    at_s: float
    leader: int | None
    in_sync: tuple[int, ...]
    running: tuple[int, ...]


@dataclass(slots=True)
class Recording:
    """A failover as it happened. Times in seconds since the start."""

    acknowledged_s: list[float] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    killed_s: float = 0.0
    killed: int = 0
    restarted_s: float = 0.0
    ends_s: float = 0.0
    lost: int = 0
    duplicated: int = 0

    @property
    def gap(self) -> tuple[float, float]:
        """The longest time without an acknowledgement from the kill to the restart: its start and end."""
        pairs = zip(self.acknowledged_s, self.acknowledged_s[1:], strict=False)
        return max(
            (pair for pair in pairs if self.killed_s < pair[1] <= self.restarted_s), key=lambda pair: pair[1] - pair[0]
        )


def record(seconds: tuple[float, float, float] = (BEFORE_S, DOWN_S, AFTER_S)) -> Recording:
    """Runs a cluster, kills the leader of a partition under load, and starts it again.

    Arguments:
        seconds: before the kill, from the kill to the restart, after the replica is in sync again.
    """
    before_s, down_s, after_s = seconds
    seen = Recording()
    with (
        tempfile.TemporaryDirectory() as directory,
        LocalCluster(nodes=3, data_dir=Path(directory)) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer,
    ):
        admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=3)])
        producer.send(TOPIC, b"first").result(timeout=LIMIT_S)
        began = time.monotonic()
        stop = threading.Event()
        sent: list[bytes] = [b"first"]

        def now_s() -> float:
            return time.monotonic() - began

        def note(done: RecordFuture) -> None:
            if done.exception() is None:
                seen.acknowledged_s.append(now_s())

        def send() -> None:
            while not stop.wait(SEND_EVERY_S):
                value = b"%d" % len(sent)
                sent.append(value)
                producer.send(TOPIC, value).add_done_callback(note)

        def observe() -> State:
            (partition,) = admin.describe_topics([TOPIC])[0].partitions
            running = tuple(node for node in cluster.node_ids if cluster.is_running(node))
            seen.states.append(State(now_s(), partition.leader, tuple(partition.isr), running))
            return seen.states[-1]

        def observe_until(is_over: Callable[[State], bool]) -> None:
            deadline_s = now_s() + LIMIT_S
            while not is_over(observe()):
                if now_s() > deadline_s:
                    raise TimeoutError(f"the partition did not become as expected within {LIMIT_S:.0f} s")
                time.sleep(0.005)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            observe_until(lambda state: state.at_s >= before_s)
            seen.killed = cluster.leader(TOPIC) or 0
            seen.killed_s = now_s()
            cluster.kill(seen.killed)
            observe_until(lambda state: state.at_s >= seen.killed_s + down_s and len(state.in_sync) == 2)
            seen.restarted_s = now_s()
            restart = threading.Thread(target=cluster.start, args=(seen.killed,))
            restart.start()
            observe_until(lambda state: len(state.in_sync) == 3)
            restart.join()
            in_sync_s = now_s()
            observe_until(lambda state: state.at_s >= in_sync_s + after_s)
        finally:
            stop.set()
            sender.join()
        producer.flush(timeout=LIMIT_S)
        seen.ends_s = now_s()
        counts = _read_back(cluster.bootstrap_servers, len(sent))
        seen.lost = sum(counts[value] == 0 for value in sent)
        seen.duplicated = sum(counts[value] > 1 for value in sent)
        seen.acknowledged_s.sort()
    return seen


def _read_back(servers: str, expected: int) -> Counter[bytes]:
    """Counts how often the topic has each value."""
    counts: Counter[bytes] = Counter()
    with Consumer(bootstrap_servers=servers) as consumer:
        partition = TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < max(end, expected):
            for records in consumer.poll(timeout_ms=1_000).values():
                counts.update(each.value for each in records if each.value is not None)
    return counts


STYLE = """
text{font:14px ui-sans-serif,system-ui,sans-serif;fill:#1f2328}.dim{fill:#656d76}.big{font-size:22px;font-weight:600}
.node{fill:#f6f8fa;stroke:#d0d7de}.leader{fill:#dafbe1;stroke:#1a7f37}.down{fill:#ffebe9;stroke:#cf222e}
.ack{stroke:#1a7f37}.axis{stroke:#d0d7de}.gap{fill:#ffebe9}.now{stroke:#0969da}.page{fill:#fff}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.dim{fill:#8d96a0}.node{fill:#161b22;stroke:#30363d}.page{fill:#0d1117}
.leader{fill:#12261e;stroke:#3fb950}.down{fill:#25171c;stroke:#f85149}.ack{stroke:#3fb950}.axis{stroke:#30363d}
.gap{fill:#25171c}.now{stroke:#58a6ff}}
"""


class _Picture:
    """An SVG that repeats: elements are shown for parts of its duration.

    Arguments:
        length_s: of the recording.
    """

    def __init__(self, length_s: float) -> None:
        self._length_s = length_s
        self._parts: list[str] = []

    def add(self, element: str) -> None:
        self._parts.append(element)

    def x_of(self, at_s: float) -> float:
        """Returns the position of a moment on the time axis."""
        return round(LEFT + (WIDTH - LEFT - RIGHT) * at_s / self._length_s, 1)

    def shown(self, element: str, from_s: float, to_s: float) -> None:
        """Adds an element that is visible from one moment to another."""
        begin, end = (min(1.0, max(0.0, each / self._length_s)) for each in (from_s, to_s))
        steps = [(0.0, "hidden" if begin > 0 else "visible")]
        steps += [(begin, "visible")] if begin > 0 else []
        steps += [(end, "hidden")] if end < 1 else []
        tag = element[1:].split(maxsplit=1)[0]
        change = (
            f'<animate attributeName="visibility" values="{";".join(value for _, value in steps)}" '
            f'keyTimes="{";".join(f"{at:.4f}" for at, _ in steps)}" calcMode="discrete" '
            f'dur="{self._length_s * SLOWER:.2f}s" repeatCount="indefinite"/>'
        )
        opening, _, content = element.partition(">")
        text = content.removesuffix(f"</{tag}>")
        self.add(f'{opening} visibility="hidden">{text}{change}</{tag}>')

    def text(self) -> str:
        """The whole file."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
            f'role="img" aria-label="A leader is killed and another node takes over"><style>{STYLE}</style>'
            f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>' + "".join(self._parts) + "</svg>\n"
        )


def draw(seen: Recording) -> str:
    """The recording as an SVG."""
    picture = _Picture(seen.ends_s)
    _draw_nodes(picture, seen)
    _draw_time(picture, seen)
    gap_from_s, gap_to_s = seen.gap
    captions = [
        (0.0, seen.killed_s, "A producer writes with acks=all: each record is on the disks of a majority."),
        (seen.killed_s, gap_to_s, f"kill -9: node {seen.killed}, the leader, is gone."),
        (
            gap_to_s,
            seen.restarted_s,
            f"Another node leads. The producer waited {gap_to_s - gap_from_s:.2f} s.",
        ),
        (seen.restarted_s, seen.ends_s, "The killed node restarts, catches up, and is in sync again."),
    ]
    for from_s, to_s, caption in captions:
        picture.shown(f'<text x="{LEFT}" y="34">{caption}</text>', from_s, to_s)
    result = f"{len(seen.acknowledged_s):,} acknowledged · {seen.lost} lost · {seen.duplicated} duplicated"
    picture.shown(f'<text class="big" x="{LEFT}" y="288">{result}</text>', seen.ends_s - AFTER_S, seen.ends_s)
    return picture.text()


def _draw_nodes(picture: _Picture, seen: Recording) -> None:
    """A box for each node; its colour and words change with its state."""
    width = (WIDTH - LEFT - RIGHT - 2 * 20) / 3
    for number, node in enumerate(sorted({each for state in seen.states for each in state.running})):
        x = LEFT + number * (width + 20)
        changes: list[tuple[float, str, str]] = []
        for state in seen.states:
            if node not in state.running:
                look = ("down", "down")
            elif state.leader == node:
                look = ("leader", "leader")
            else:
                look = ("node", "follower, in sync" if node in state.in_sync else "follower, catching up")
            if not changes or changes[-1][1:] != look:
                changes.append((state.at_s if changes else 0.0, *look))
        ends = [each[0] for each in changes[1:]] + [seen.ends_s]
        for (from_s, look, words), to_s in zip(changes, ends, strict=True):
            box = f'<rect class="{look}" x="{x:.0f}" y="54" width="{width:.0f}" height="74" rx="8"></rect>'
            picture.shown(box, from_s, to_s)
            picture.shown(f'<text class="dim" x="{x + 16:.0f}" y="112">{words}</text>', from_s, to_s)
        picture.add(f'<text class="big" x="{x + 16:.0f}" y="88">node {node}</text>')


def _draw_time(picture: _Picture, seen: Recording) -> None:
    """The time axis: a line for each acknowledgement, the longest gap between two, and the number so far."""
    top, bottom = 176, 226
    gap_from_s, gap_to_s = seen.gap
    x, width = picture.x_of(gap_from_s), picture.x_of(gap_to_s) - picture.x_of(gap_from_s)
    gap = f'<rect class="gap" x="{x}" y="{top}" width="{width:.1f}" height="{bottom - top}"></rect>'
    picture.shown(gap, gap_to_s, seen.ends_s)
    # No more lines than can be distinguished.
    for x in sorted({picture.x_of(at_s) // 2 * 2 for at_s in seen.acknowledged_s}):
        at_s = (x - LEFT) / (WIDTH - LEFT - RIGHT) * seen.ends_s
        picture.shown(f'<line class="ack" x1="{x}" x2="{x}" y1="{bottom}" y2="{top}"></line>', at_s, seen.ends_s)
    picture.add(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    picture.add(f'<text class="dim" x="{LEFT}" y="{top - 14}">records acknowledged</text>')
    second = 0
    while second < seen.ends_s:
        picture.add(f'<text class="dim" x="{picture.x_of(second)}" y="{bottom + 20}">{second} s</text>')
        second += 1
    steps = 40
    for step in range(steps):
        from_s, to_s = (seen.ends_s * each / steps for each in (step, step + 1))
        count = sum(at_s < to_s for at_s in seen.acknowledged_s)
        counter = f'<text x="{WIDTH - RIGHT}" y="{top - 14}" text-anchor="end">{count:,}</text>'
        picture.shown(counter, from_s, to_s)
    moves = "".join(
        f'<animate attributeName="{end}" from="{LEFT}" to="{WIDTH - RIGHT}" dur="{seen.ends_s * SLOWER:.2f}s" '
        'repeatCount="indefinite"/>'
        for end in ("x1", "x2")
    )
    picture.add(f'<line class="now" y1="{top - 6}" y2="{bottom}">{moves}</line>')


def main() -> int:
    """Records and writes the picture; fails if a record was lost or duplicated."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, required=True, help="the file to write")
    options = parser.parse_args()
    seen = record()
    options.to.write_text(draw(seen))
    gap_from_s, gap_to_s = seen.gap
    print(f"{len(seen.acknowledged_s)} acknowledged, {seen.lost} lost, {seen.duplicated} duplicated")
    print(f"longest gap between acknowledgements: {gap_to_s - gap_from_s:.3f} s, {options.to.stat().st_size:,} bytes")
    return 0 if not seen.lost and not seen.duplicated else 1


if __name__ == "__main__":
    sys.exit(main())
