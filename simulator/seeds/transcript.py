"""A transcript of a seed's last moments: the plan, the faults, and what the affected group received, sent, wrote and
committed.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import fields
from typing import NamedTuple

from quorumlog.raft.types import Entry, Heartbeat, HeartbeatResponse, InstallSnapshot, Message, Role
from quorumlog.server.step.events import Effects, Event, FrameReceived
from quorumlog.simulator.seeds.simulation import SeedResult, Simulation
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.process import SimProcess
from quorumlog.storage.transaction import RaftGroupWrite

#: Limits of remembered lines, and of printed lines of the group. All faults are printed.
MOST_REMEMBERED = 100_000
MOST_TOLD = 120


class TranscriptLine(NamedTuple):
    """One event. ``group`` is None for faults and for events of a whole process."""

    at_us: int
    group: int | None
    text: str


class Narrator:
    """Watches a simulation and remembers the actions of each group."""

    def __init__(self, simulation: Simulation) -> None:
        self.lines: deque[TranscriptLine] = deque(maxlen=MOST_REMEMBERED)
        self._scheduler = simulation.scheduler
        self._known: dict[tuple[int, int], tuple[Role, int, int]] = {}
        simulation.scheduler.listener = self._heard
        simulation.cluster.narrator = self

    def _heard(self, now: int, text: str) -> None:
        if text.startswith("fault ") or " starts life " in text or text.endswith(" dies"):
            self.lines.append(
                TranscriptLine(now, None, f"--- {text}" if text.startswith("fault ") else f"    node {text}")
            )

    def _add_line(self, group: int, text: str) -> None:
        self.lines.append(TranscriptLine(self._scheduler.now, group, text))

    def stepped(self, process: SimProcess, events: list[Event], effects: Effects) -> None:
        """Records a step of a node."""
        node = process.node_id
        for event in events:
            if isinstance(event, FrameReceived):
                for group, message in event.frame.messages:
                    self._message(group, f"n{node} < n{event.peer}", message)
        for group in effects.groups:
            self._changes(process, node, group)
        for write in effects.transaction.writes if effects.transaction is not None else ():
            self._add_line(write.group, f"    n{node} writes {', '.join(_parts(write)) or 'rows'}")
        for peer, frame in effects.frames:
            for group, message in frame.messages:
                self._message(group, f"n{node} > n{peer}", message)

    def _message(self, group: int, way: str, message: Message) -> None:
        if not isinstance(message, Heartbeat | HeartbeatResponse):
            self._add_line(group, f"    {way} {in_words(message)}")

    def _changes(self, process: SimProcess, node: int, group: int) -> None:
        replica = process.replicas.get(group)
        if replica is None:
            return
        raft = replica.raft
        now = (raft.role, raft.term, raft.commit_index)
        was = self._known.get((node, group))
        self._known[(node, group)] = now
        if was is None or was[:2] != now[:2]:
            self._add_line(group, f"    n{node} is {now[0].value} in term {now[1]}")
        if was is None or was[2] != now[2]:
            self._add_line(group, f"    n{node} commits up to {now[2]}")


def in_words(message: Message) -> str:
    """Describes a Raft message in one line, by its unusual parts."""
    said = [f"{type(message).__name__} term {message.term}"]
    for item in fields(message):
        value = getattr(message, item.name)
        if item.name in ("sender", "to", "term") or value is False or (value == 0 and item.name.startswith("hint")):
            continue
        if item.name == "entries":
            said.append(f"entries {_span(value)}")
        elif isinstance(message, InstallSnapshot) and item.name == "snapshot":
            said.append(f"up to {value.last.index}@{value.last.term}")
        else:
            said.append(item.name if value is True else f"{item.name} {value}")
    return ", ".join(said)


def _span(entries: list[Entry]) -> str:
    if not entries:
        return "none"
    first, last = entries[0], entries[-1]
    whole = f"{first.index}@{first.term}"
    return whole if len(entries) == 1 else f"{whole}..{last.index}@{last.term}"


def _parts(write: RaftGroupWrite) -> Iterator[str]:
    if write.create is not None:
        yield f"the replica, voters {list(write.create.voters)}"
    if write.snapshot is not None:
        yield f"a snapshot up to {write.snapshot.last.index}@{write.snapshot.last.term}"
    if write.truncate_from is not None:
        yield f"truncation from {write.truncate_from}"
    if write.entries:
        yield f"entries {_span(write.entries)}"
    if write.hard_state is not None:
        state = write.hard_state
        yield f"term {state.term}, vote {state.vote}, commit {state.commit}"
    if write.compact_to is not None:
        yield f"compaction up to {write.compact_to.index}"


def group_concerned(violation: str, cluster: SimCluster) -> int | None:
    """Returns the group that a violation names; None if it names none."""
    named = re.search(r"group (\d+)", violation)
    if named is not None:
        return int(named[1])
    for process in cluster.processes.values():
        for group, partition in process.image.partitions.items() if process.image is not None else ():
            if f"{partition.topic.name}-{partition.number}" in violation:
                return group
    return None


def transcript(seed: int, only_faults: frozenset[int] | None, with_groups: bool = False) -> tuple[str, SeedResult]:
    """Runs a seed again with these faults, and describes it up to the violation.

    Arguments:
        with_groups: as for the simulation.

    Returns:
        The text, and the result of the run.
    """
    simulation = Simulation(seed, only_faults, with_groups=with_groups)
    narrator = Narrator(simulation)
    result = simulation.run()
    violation = result.violation or ""
    group = group_concerned(violation, simulation.cluster)
    plan = simulation.plan
    shown = [line for line in narrator.lines if line.group is not None and group in (None, line.group)][-MOST_TOLD:]
    faults = [line for line in narrator.lines if line.group is None]
    story = sorted((*shown, *faults), key=lambda line: line.at_us)
    head = [
        f"seed {seed}: {violation or 'all invariants hold'}",
        f"after {result.events} events, {result.steps} steps, {len(result.struck)} faults",
        "",
        f"cluster: {plan.cluster}",
        f"topics: {plan.topics}, late: {plan.late_topic}",
        *(f"{name}: {options}" for name, options in plan.producers.items()),
        *(str(group) for group in (*plan.groups, *plan.classic_groups)),
        "",
        f"The last {len(shown)} actions of {'all groups' if group is None else f'group {group}'}, and all faults"
        " (seconds; < received, > sent):",
        "",
    ]
    return "\n".join(head + [f"{line.at_us / 1e6:10.6f} {line.text}" for line in story]) + "\n", result
