"""Every block of README.md and docs/use/tour.md that is marked ``<!-- run -->`` runs as written, on a real cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.readme_tour import README, ROOT, TOUR, blocks, tour

#: What the blocks of the README print, in order.
IN_README = [["Created topic orders", "serving"], [], ["b'anna' b'3 apples'"], ["anna", "3 apples"], ["1 passed"]]
#: The same of the tour.
EXPECTED = [
    ["Created topic orders", "PartitionCount: 3", "ReplicationFactor: 3"],
    ["Produced 3 records to orders", "anna bought 3 apples", "anna bought 2 plums", "clara bought 1 pear"],
    ["LOG-END-OFFSET", "NEW-OFFSET", "this was a dry run", "again: clara bought 1 pear"],
    ["healthy: 3 nodes", "ClusterId:", "LeaderId:", "CurrentVoters:", '"partition": 2'],
    [
        "Configs: retention.ms=86400000",
        "Topic scratch has 4 partitions.",
        "min.insync.replicas",
        "Deleted topic scratch",
    ],
    ["3,1,2      moved", "No partition is being moved."],
    ["RecordMetadata(topic='readings', partition=0, offset=999", "1000 rows:"],
    ["anna", "3 apples", "partition", "offset"],
    ["1 passed"],
    ["bytes copied", "sound."],
    ["sound:"],
]


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.timeout(480)
def test_the_readme_runs_as_written(tmp_path: Path) -> None:
    with tour(tmp_path) as taken:
        taken.run_all(list(zip(blocks(README), IN_README, strict=True)))


def test_the_readme_fits_its_limit() -> None:
    assert len((ROOT / README).read_text().splitlines()) <= 120


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.timeout(480)
def test_the_tour_runs_as_written(tmp_path: Path) -> None:
    found = blocks()
    assert len(found) == len(EXPECTED), "a block was added or removed: say in EXPECTED what it must print"
    with tour(tmp_path) as taken:
        taken.run_all(list(zip(found, EXPECTED, strict=True)))


@pytest.mark.cluster
@pytest.mark.timeout(480)
def test_its_commands_run_with_tls_by_one_flag(tmp_path: Path) -> None:
    commands = [(block, says) for block, says in zip(blocks(), EXPECTED, strict=True) if block.how == "bash"]
    backups = [(block, says) for block, says in commands if "backup" in block.text]
    with tour(tmp_path, tls=True) as taken:
        # What backups hold was written from Python.
        chosen = [each for each in commands if each not in backups]
        taken.run_all(chosen[:1])
        assert "security.protocol=SSL" in taken.properties.read_text()
        taken.run_all(chosen[1:])


def test_links_of_readme_and_tour_exist() -> None:
    for page in (README, TOUR):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", (ROOT / page).read_text()):
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}, which does not exist"


def test_what_newcomers_type_is_typed_in_the_tour_too() -> None:
    """So it has been run as written."""
    page = (ROOT / "docs" / "use" / "newcomers.md").read_text()
    typed = [line for block in re.findall(r"^```bash\n(.*?)^```", page, re.M | re.S) for line in block.splitlines()]
    known = [line for block in blocks() for line in block.text.splitlines()]
    assert typed
    assert [line for line in typed if not any(one.startswith(line) for one in known)] == []
