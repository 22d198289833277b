"""Simulated clusters lose most of their nodes permanently, at any moment, and the rest is recovered.

The recovered cluster is another one, so the simulator checks it separately: its own terms, commits and logs. Its
relation to the former cluster is checked here: the chosen logs are complete, and nothing comes from the nodes that were
given up.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Callable
from functools import partial

import pytest
from quiet_cluster import SECOND, TOPIC, Quiet

from quorumlog.chaos.checkers.history import History, OperationOutcome
from quorumlog.raft.types import ORIGIN, Entry, EntryKind
from quorumlog.server.metadata.records import METADATA_GROUP
from quorumlog.server.recovery.application import application, is_applied
from quorumlog.server.recovery.plan import Loss, RecoveryPlan, make_plan
from quorumlog.server.recovery.survey import Survey, survey
from quorumlog.server.step.events import Effects, Event, FrameReceived
from quorumlog.simulator.models.records import values_of
from quorumlog.simulator.world.clients import PartitionName, SimProducer, SimProducerOptions
from quorumlog.simulator.world.cluster import ClusterOptions, SimCluster
from quorumlog.simulator.world.disk import DiskOptions, SimDisk
from quorumlog.simulator.world.network import NetworkOptions
from quorumlog.simulator.world.process import SimProcess
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.storage.transaction import StorageTransaction

NODES = (1, 2, 3, 4, 5)
PARTITIONS = [PartitionName(TOPIC, number) for number in range(6)]


class Losing(Quiet):
    """A cluster of five nodes that is written to while links fail and nodes crash and restart."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, partitions=len(PARTITIONS), nodes=len(NODES), checkpoint_entries=seed % 2 * 1_990 + 10)
        self.rng = self.scheduler.stream("losses")
        options = SimProducerOptions(interval_us=(2_000, 8_000), max_in_flight=3, request_timeout_us=200_000)
        SimProducer("writer", PARTITIONS, self.cluster, self.scheduler, options, self.history, self.cluster)
        self.run(2)
        for _ in range(6):
            self.trouble()
        assert sum(1 for _ in self.history.sends(OperationOutcome.OK)) > 50, "it does not write"

    def trouble(self) -> None:
        network, rng = self.cluster.network, self.rng
        apart = rng.sample(NODES, rng.randint(1, 2))
        cuts = [
            pair for node in apart for other in NODES if other not in apart for pair in ((node, other), (other, node))
        ]
        for pair in cuts:
            network.cut(*pair)
        victim = rng.choice(NODES)
        self.cluster.processes[victim].die(silent=rng.random() < 0.5)
        self.run(rng.uniform(0.2, 3))
        if not self.cluster.processes[victim].running:
            self.cluster.start(victim)
        for pair in cuts:
            network.mend(*pair)
        self.run(rng.uniform(0, 1))

    def end(self) -> dict[int, SimDisk]:
        """Kills all nodes, one after the other, and returns copies of their disks, whose writes are not checked."""
        for node in self.rng.sample(NODES, len(NODES)):
            self.run(self.rng.uniform(0, 0.3))
            self.cluster.processes[node].die(silent=True)
        copies = {}
        for node, process in self.cluster.processes.items():
            copies[node] = SimDisk(node, self.scheduler, self.rng, DiskOptions(), lambda disk, transaction: None)
            copies[node].synced, copies[node].rows = copy.deepcopy(process.disk.synced), dict(process.disk.rows)
        return copies

    def commit(self, disk: SimDisk, transaction: StorageTransaction) -> None:
        done: list[object] = []
        disk.submit(transaction, done.append)
        self.run(1)
        assert done

    def recover(self, disks: dict[int, SimDisk], survivors: tuple[int, ...]) -> tuple[RecoveryPlan, dict[int, Survey]]:
        """Does what the three recovery commands do: surveys, plans and applies. Returns the plan and the surveys."""
        surveys = {node: survey(disks[node]) for node in survivors}
        through_a_file = [Survey.from_json(each.to_json(), "a survey") for each in surveys.values()]
        assert through_a_file == list(surveys.values())
        plan = make_plan(through_a_file)
        assert plan == make_plan(through_a_file[::-1]), "the plan does not depend on the order of the surveys"
        assert RecoveryPlan.from_json(plan.to_json(), "a plan") == plan
        for node in survivors:
            self.commit(disks[node], application(plan, survey(disks[node]), disks[node]))
            assert is_applied(plan, survey(disks[node]))
        return plan, surveys


class Recovered:
    """The recovered cluster, on the survivors' disks."""

    def __init__(self, seed: int, disks: dict[int, SimDisk], plan: RecoveryPlan, former: tuple[int, ...] = ()) -> None:
        # Another seed than the former one's: new data directories have other ids.
        self.scheduler = Scheduler(1_000 + seed)
        options = ClusterOptions(
            nodes=len(NODES),
            disk=DiskOptions(slow_probability=0),
            network=NetworkOptions(spike_probability=0),
        )
        self.former = former
        self._empty: dict[int, SimDisk] = {}
        self.heard_of_former: list[Event] = []
        self.cluster = SimCluster(self.scheduler, options)
        self.judge_from(plan, disks)
        self._judge = self.cluster.stepped
        self.cluster.stepped = self._judge_recovered  # type: ignore[method-assign]
        for node, disk in disks.items():
            process = self.cluster.processes[node]
            if node in former:
                # Their state differs from that of the recovered cluster, so their disks are not checked.
                self._empty[node] = process.disk
                process.disk = SimDisk(
                    node, self.scheduler, self.scheduler.stream("former"), DiskOptions(), lambda disk, transaction: None
                )
            process.disk.synced, process.disk.rows = copy.deepcopy(disk.synced), dict(disk.rows)
            process.deliver = partial(self._deliver, process, process.deliver)  # type: ignore[method-assign]
            self.cluster.start(node)
        self.history = History()

    def _judge_recovered(self, process: SimProcess, events: list[Event], effects: Effects) -> None:
        if process.node_id not in self.former:
            self._judge(process, events, effects)

    def _deliver(self, process: SimProcess, deliver: Callable[[Event], None], event: Event) -> None:
        if isinstance(event, FrameReceived) and process.node_id not in self.former and event.peer in self.former:
            self.heard_of_former.append(event)
        deliver(event)

    def begin_empty(self, node: int) -> None:
        """A node of the former cluster is started with an empty data directory."""
        process = self.cluster.processes[node]
        process.die(silent=True)
        process.disk = self._empty.pop(node)
        self.former = tuple(each for each in self.former if each != node)
        self.cluster.start(node)

    def judge_from(self, plan: RecoveryPlan, disks: dict[int, SimDisk]) -> None:
        """Registers the logs that the plan chose as committed from the beginning."""
        invariants = self.cluster.invariants
        invariants.goes_on(METADATA_GROUP, plan.last, [], plan.configuration, plan.last.term)
        for group, outcome in plan.outcomes.items():
            log = disks[outcome.goes_on.node].synced[group]
            assert log.anchor == ORIGIN
            invariants.goes_on(group, ORIGIN, log.entries, log.configuration, outcome.goes_on.term)

    def run(self, seconds: float) -> None:
        self.scheduler.run(self.scheduler.now + int(seconds * SECOND))

    def write(self) -> None:
        options = SimProducerOptions(interval_us=(2_000, 8_000), max_in_flight=1, request_timeout_us=200_000)
        SimProducer("later", PARTITIONS, self.cluster, self.scheduler, options, self.history, self.cluster)

    def until_whole(self, present: tuple[int, ...]) -> None:
        end = self.scheduler.now + 60 * SECOND
        while not self.is_whole(present):
            assert self.scheduler.now < end, "not whole after a minute"
            self.run(0.1)

    def is_whole(self, present: tuple[int, ...]) -> bool:
        """True if exactly the present nodes vote on the metadata, and all replicas intended for them are in sync."""
        for node in present:
            process = self.cluster.processes[node]
            image = process.image
            if image is None or METADATA_GROUP not in process.replicas:
                return False
            if set(process.replicas[METADATA_GROUP].raft.configuration.voters) != set(present):
                return False
            for record in image.partitions.values():
                there = set(record.intended).intersection(present)
                if record.is_moving or set(record.isr) != set(record.replicas) or not there <= set(record.replicas):
                    return False
        return True

    def logs(self, group: int) -> dict[int, list[Entry]]:
        return {
            node: list(process.disk.synced[group].entries)
            for node, process in self.cluster.processes.items()
            if node not in self.former and group in process.disk.synced
        }


def values_in(entries: list[Entry]) -> Counter[str]:
    return Counter(value for entry in entries if entry.kind is EntryKind.BATCH for value in values_of(entry.data))


@pytest.mark.parametrize("lost_count", [3, 4])
@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_left_goes_on_and_nothing_is_lost_that_need_not_be(seed: int, lost_count: int) -> None:
    losing = Losing(seed)
    disks = losing.end()
    survivors = tuple(sorted(losing.rng.sample(NODES, len(NODES) - lost_count)))
    before = {node: copy.deepcopy(disks[node].synced) for node in survivors}
    plan, surveys = losing.recover(disks, survivors)
    assert set(plan.survivors) == set(survivors)

    recovered = Recovered(seed, {node: disks[node] for node in survivors}, plan)
    recovered.write()
    recovered.run(1)
    # It may go wrong now as at any other time.
    again = losing.rng.choice(survivors)
    recovered.cluster.processes[again].die(silent=True)
    recovered.run(losing.rng.uniform(0, 1))
    recovered.cluster.start(again)
    recovered.until_whole(survivors)
    for node in NODES:
        if node not in survivors:
            recovered.cluster.start(node)
    recovered.until_whole(NODES)
    written = sum(1 for _ in recovered.history.sends(OperationOutcome.OK))
    recovered.run(2)
    assert sum(1 for _ in recovered.history.sends(OperationOutcome.OK)) > written, "it takes records"

    acknowledged = list(losing.history.sends(OperationOutcome.OK))
    for group, outcome in plan.outcomes.items():
        logs = recovered.logs(group)
        assert len(logs) == 3
        for one, other in itertools.pairwise(logs.values()):
            assert all(mine == theirs for mine, theirs in zip(one, other, strict=False)), "replicas are copies"
        if outcome.goes_on.fresh:
            assert all(group not in each for each in before.values()), "a group that no survivor had"
            continue
        chosen = before[outcome.goes_on.node][group]
        for log in logs.values():
            assert log[: len(chosen.entries)] == chosen.entries, "all that was chosen is there"
        for held in before.values():
            if group in held:
                assert (held[group].last.term, held[group].last.index) <= (chosen.last.term, chosen.last.index)
                assert held[group].hard_state.term < min(entry.term for entry in logs[outcome.goes_on.node][-1:])
        if outcome.loss is Loss.NOTHING:
            there = values_in(chosen.entries)
            for send in acknowledged:
                if send.partition == outcome.name:
                    assert there[send.value] == 1, "nothing is lost where the plan says so"
    for node, held in before.items():
        assert surveys[node].groups.keys() == held.keys()


@pytest.mark.parametrize("seed", [1, 2])
def test_who_comes_back_of_the_former_cluster_is_not_heard(seed: int) -> None:
    losing = Losing(seed)
    disks = losing.end()
    order = losing.rng.sample(NODES, len(NODES))
    survivors, back = tuple(sorted(order[:2])), tuple(order[2:4])
    plan, _ = losing.recover(disks, survivors)
    recovered = Recovered(seed, {node: disks[node] for node in (*survivors, *back)}, plan, former=back)
    recovered.write()
    recovered.until_whole(survivors)
    recovered.run(5)
    assert any(recovered.history.sends(OperationOutcome.OK)), "it takes records"
    assert recovered.heard_of_former == [], "not one frame gets in"
    for node in back:
        identity = recovered.cluster.identity(node)
        assert identity.cluster_id == plan.former_cluster_id, "nor do they join"
        for survivor in survivors:
            refusal = recovered.cluster.refusal(survivor, identity)
            assert refusal is not None
            assert f"node {node} returned from cluster {plan.former_cluster_id}, which was given up" in refusal
            assert recovered.cluster.refusal(node, recovered.cluster.identity(survivor)) is not None
    # Started empty, they belong to it.
    for node in back:
        recovered.begin_empty(node)
    for node in NODES:
        if node not in (*survivors, *back):
            recovered.cluster.start(node)
    recovered.until_whole(NODES)
