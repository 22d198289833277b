"""The SDK's backups on virtual time: taken while all is hurt, restored into a fresh cluster that also has faults."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.seeds.client_simulation import ClientSimulation
from quorumlog.simulator.seeds.story import Story
from quorumlog.simulator.seeds.summary import Tally, replay_line
from quorumlog.simulator.simulate import run_seeds

#: All of them take backups: of small and of large pieces, once and again, with groups and without.
SEEDS = (5, 9, 16, 40, 57, 63, 101, 134)


@pytest.mark.timeout(600)
def test_backups_under_faults_bring_back_what_was_committed(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally(Story.CLIENTS)
    for result in run_seeds(SEEDS, jobs=2, story=Story.CLIENTS):
        tally.add(result)
    with capsys.disabled():
        print("\n" + "\n".join(tally.lines()))
    assert not tally.failed, "\n".join(replay_line(result, Story.CLIENTS) for result in tally.failed)
    assert tally.happened["restores"] == len(SEEDS)
    assert tally.happened["backups"] > len(SEEDS), "some are added to"
    assert tally.happened["failed_backups"] > 0, "some come to nothing at first"
    assert tally.happened["restored_records"] > 50 * len(SEEDS)


def test_a_batch_that_is_missing_from_a_restored_partition_is_noticed() -> None:
    simulation = ClientSimulation(57, with_groups=True)
    assert simulation.run().violation is None
    restore = simulation._restore
    assert restore is not None
    partition = next(each for each in restore._taken.partitions if each.batches)
    lost = replace(partition, batches=partition.batches[:-1])
    with pytest.raises(Violation, match="ends at"):
        restore._judge.judge()  # Producers have gone on since.
    with pytest.raises(Violation, match=r"(has batches|ends) at"):
        restore._judge._check_partition(lost)
