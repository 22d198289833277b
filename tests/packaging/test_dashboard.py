"""The dashboard for Grafana: made of the catalogue of metrics, with all of it, in expressions that Prometheus takes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from quorumlog.server.observability.metric_catalogue import CATALOGUE
from tests.support.exported_names import exported_names
from tests.support.readme_tour import ROOT

PAGE = ROOT / "packaging/grafana/quorumlog.json"
PANELS: list[dict[str, Any]] = json.loads(PAGE.read_text())["panels"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel.get("targets", ())]


def test_the_dashboard_is_what_the_catalogue_makes_of_it() -> None:
    """To regenerate: python packaging/grafana/dashboard.py > packaging/grafana/quorumlog.json"""
    script = ROOT / "packaging/grafana/dashboard.py"
    made = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=True)
    assert made.stdout == PAGE.read_text()


def test_every_metric_is_shown_and_nothing_else() -> None:
    requests = {name for expression in EXPRESSIONS for name in re.findall(r"quorumlog_\w+", expression)}
    assert requests - exported_names(CATALOGUE) == set()
    unseen = [name for name, family in CATALOGUE.items() if not requests & exported_names({name: family})]
    assert not unseen


def test_panels_have_titles_of_their_own_and_places_of_their_own() -> None:
    titles = [panel["title"] for panel in PANELS]
    assert len(set(titles)) == len(titles)
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells


def test_every_panel_says_what_it_shows_and_of_which_cluster() -> None:
    for panel in PANELS:
        if panel["type"] != "row":
            assert panel["description"].endswith(".") and panel["targets"], panel["title"]
    for expression in EXPRESSIONS:
        for name in re.findall(r"quorumlog_\w+(?:\{.*?\})?", expression):
            assert name.endswith('{job="$job"}'), expression


#: Of each partition: log start, end, what the group has committed, and its lag.
LAGS = {"0": (0, 100, 40, 60), "1": (70, 100, 40, 30), "2": (100, 100, 40, 0), "3": (0, 100, 107, 0)}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.parametrize("partition", LAGS)
def test_lag_counts_from_the_log_start(partition: str, tmp_path: Path) -> None:
    (expression,) = [each for each in EXPRESSIONS if "consumer_group_committed_offset" in each]
    start, end, committed, lag = LAGS[partition]
    place = f'job="shop", topic="orders", partition="{partition}"'
    exported = {
        f"quorumlog_partition_log_start_offset{{{place}}}": start,
        f"quorumlog_partition_high_watermark{{{place}}}": end,
        f'quorumlog_consumer_group_committed_offset{{{place}, group="billing"}}': committed,
    }
    test = {
        "interval": "15s",
        "input_series": [{"series": name, "values": str(value)} for name, value in exported.items()],
        "promql_expr_test": [
            {
                "expr": expression.replace("$job", "shop"),
                "eval_time": "0s",
                "exp_samples": [{"labels": '{group="billing", topic="orders"}', "value": lag}],
            }
        ],
    }
    page = tmp_path / "test.yml"
    page.write_text(json.dumps({"tests": [test]}))
    done = subprocess.run(
        ["promtool", "test", "rules", str(page)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_takes_every_expression(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": expression.replace("$job", "shop").replace("$__rate_interval", "1m")}
        for number, expression in enumerate(EXPRESSIONS)
    ]
    page = tmp_path / "rules.yml"
    page.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(page)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(EXPRESSIONS)} rules found" in done.stdout
