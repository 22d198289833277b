"""The SDK's own clients on virtual time, under faults of nodes, of the network and of their own."""

from __future__ import annotations

from collections import Counter

import pytest

from quorumlog.simulator.clients.client_faults import KINDS
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.seeds.client_simulation import ClientSimulation
from quorumlog.simulator.seeds.story import Story
from quorumlog.simulator.seeds.summary import Tally, replay_line
from quorumlog.simulator.simulate import run_seeds
from tests.support.repeated_seeds import traces_with_other_hashes

#: ``make test-compiled`` runs the next ones. The last three also run twice.
SEEDS = (*range(1, 17), 29, 30, 57)
#: Of these, those that run twice.
REPEATED = (3, 29, 30, 57)


@pytest.mark.timeout(600)
def test_fixed_seeds_keep_every_promise_to_the_shipped_clients(capsys: pytest.CaptureFixture[str]) -> None:
    """Every seed takes a course of its own, and the same course again."""
    tally = Tally(Story.CLIENTS)
    struck: Counter[str] = Counter()
    traces: dict[int, str] = {}
    for result in run_seeds(SEEDS, jobs=2, story=Story.CLIENTS):
        tally.add(result)
        traces[result.seed] = result.trace
        struck.update(result.faults)
    with capsys.disabled():
        print("\n" + "\n".join(tally.lines()))
    assert not tally.failed, "\n".join(replay_line(result, Story.CLIENTS) for result in tally.failed)
    assert {f"client-{kind}" for kind in KINDS} <= set(struck), "every kind of fault happens in some seed"
    assert tally.acknowledged > 50 * len(SEEDS) and tally.group_records > 20 * len(SEEDS)
    assert tally.happened["deletions"] > len(SEEDS) / 2, "topics are deleted and created again during the runs"
    assert len(set(traces.values())) == len(SEEDS)
    assert {len(trace) for trace in traces.values()} == {32}
    assert traces_with_other_hashes(REPEATED, Story.CLIENTS) == {seed: traces[seed] for seed in REPEATED}


def test_what_the_logs_had_when_members_were_stopped_is_demanded_of_their_groups() -> None:
    simulation = ClientSimulation(3, with_groups=True)
    assert simulation.run().violation is None and simulation._reached
    for part in simulation._reached:
        simulation._reached[part] += 1
    with pytest.raises(Violation, match=r"was never (processed|read)"):
        simulation._judge()
