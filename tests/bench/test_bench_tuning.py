"""The benchmark of tunings, in small: every tuning is measured, and the defaults are compared with the best."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from bench import tuning

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.mark.parametrize(
    ("load", "tunings"), [("send, 1 KiB, 8 p", tuning.TUNINGS), ("poll, 1 KiB, 8 p", tuning.CONSUMER_TUNINGS)]
)
def test_every_tuning_of_a_load_is_measured_and_the_defaults_are_among_them(
    load: str, tunings: Mapping[str, Mapping[str, int]], tmp_path: Path
) -> None:
    report = tmp_path / "tuning.json"
    shape = ["--repetitions", "1", "--scale", "0.01", "--only", load, "--work-dir", str(tmp_path)]
    assert tuning.main([*shape, "--json", str(report)]) == 0
    (values,) = json.loads(report.read_text())["per_second"].values()
    assert list(values) == list(tunings)
    assert all(rate > 0 for (rate,) in values.values())


def test_the_best_by_the_median_is_looked_at_again() -> None:
    assert tuning.best({"defaults": [1.0, 9.0, 8.0], "other": [10.0, 1.0, 10.0]}) == "other"
    assert tuning.best({"defaults": [1.0, 9.0, 8.0], "other": [10.0, 8.0, 1.0]}) == "defaults"


def test_defaults_are_compared_with_the_best_pair_by_pair() -> None:
    assert tuning.of_the_best({"other": [2.0, 8.0], "defaults": [1.0, 8.0]}) == [0.5, 1.0]
    assert tuning.of_the_best(None) == [1.0]


def test_a_load_that_there_is_not_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert tuning.main(["--only", "nonsense"]) == 2
    assert "--only 'nonsense' is in none of: send, 100 B, 1 partition;" in capsys.readouterr().err
