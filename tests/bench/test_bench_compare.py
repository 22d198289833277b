"""Other code beside this checkout: another commit's client and nodes, the bare path, and missing versions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import compare
from bench.compare import BARE, THIS, Comparison, lay_out, table_of
from bench.figures import Figures
from bench.measurements import measurements


@pytest.mark.cluster
@pytest.mark.timeout(180)
def test_a_commit_and_the_bare_path_are_measured_beside_this_checkout(tmp_path: Path) -> None:
    report = tmp_path / "compared.json"
    shape = ["--repetitions", "1", "--scale", "0.01", "--only", "one record"]
    assert compare.main(["HEAD", BARE, *shape, "--work-dir", str(tmp_path / "work"), "--json", str(report)]) == 0
    for figure in json.loads(report.read_text())["figures"].values():
        assert figure["failures"] == {}
        assert {side: len(values) for side, values in figure["runs"].items()} == {THIS: 1, "HEAD": 1, BARE: 1}
    assert list((tmp_path / "work").iterdir()) == []


def test_a_commits_packages_are_laid_out_under_their_import_names(tmp_path: Path) -> None:
    packages = lay_out("HEAD", tmp_path)
    assert packages is not None
    assert (packages / "quorumlog" / "raft" / "group.py").is_file()
    assert (packages / "quorumlog" / "v1").is_dir()


def test_a_side_that_could_not_run_a_load_is_shown_as_failed() -> None:
    measurement = measurements(1)[0]
    comparison = Comparison(measurement, {THIS: [Figures(1.0, 1, 9_000_000)], "old": []}, {"old": "why"})
    (_, ours, theirs, ratio) = (list(column.cells) for column in table_of([comparison], 1).columns)
    assert (ours, theirs, ratio) == (["9.0"], ["failed"], [""])


def test_a_commit_that_there_is_not_is_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main(["nonsense", "--work-dir", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said == "bench: error: this checkout has no commit 'nonsense': fetch its whole history\n"
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_compiled_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compare, "COMPILED_TREE", tmp_path)
    assert compare.main(["compiled", "--work-dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "bench: error: nothing is compiled here: run make compile first\n"
