"""Alerts for Prometheus: they are those of docs/operate/metrics.md, nodes export what they need, and each fires when
its row says so, and not before."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from quorumlog.server.observability.metric_catalogue import CATALOGUE
from tests.support.exported_names import exported_names
from tests.support.readme_tour import ROOT

ALERTS = ROOT / "packaging/prometheus/alerts.yml"
RULES: list[dict[str, Any]] = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
#: Between two samples, and between two looks at the rules.
INTERVAL = "15s"
FSYNC = "quorumlog_fsync_seconds_bucket"

promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")


def rows_of_the_table() -> dict[str, set[str]]:
    """Returns the condition of an alert, by the page's words without their links, and the metrics of the row."""
    page = (ROOT / "docs/operate/metrics.md").read_text()
    (table,) = re.findall(r"^## What is worth an alert\n(.*?)^`packaging/", page, re.M | re.S)
    rows = re.findall(r"^\| (`.*?`) \| (.*) \|$", table, re.M)
    return {re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", when): set(re.findall(r"`(\w+)`", names)) for names, when in rows}


def test_there_is_a_rule_for_each_row_of_the_table_and_it_asks_for_what_the_row_names() -> None:
    requests = {
        rule["annotations"]["description"]: {
            name.removeprefix("quorumlog_").removesuffix("_bucket")
            for name in re.findall(r"quorumlog_\w+", rule["expr"])
        }
        for rule in RULES
    }
    assert requests == rows_of_the_table()


def test_rules_ask_for_what_nodes_export() -> None:
    requests = {name for rule in RULES for name in re.findall(r"quorumlog_\w+", rule["expr"])}
    assert requests - exported_names(CATALOGUE) == set()


def test_every_rule_says_how_bad_it_is_and_what_is_wrong() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule["alert"]
        assert "{{" in rule["annotations"]["summary"], "say which node, or how many"


@dataclass(frozen=True)
class Scene:
    """Returns what two clusters export, one of them in trouble: samples in promtool's notation, one each 15 seconds.

    Arguments:
        bad: series, and their samples, for which the alert fires.
        good: as near to it as is still no trouble.
        at: when both are looked at.
    """

    bad: dict[str, str]
    good: dict[str, str]
    at: str = "10m"


def fsyncs(before: str, after: str) -> dict[str, str]:
    """All of a node's fsyncs take between these upper bounds' and the next lower one's time, first and then."""
    bounds = ["0.01", "0.05", "0.1", "0.25", "+Inf"]
    return {
        f'{FSYNC}{{le="{bound}"}}': " ".join(
            f"{1000 * (step > 0 and bounds.index(bound) >= bounds.index(before))}+"
            f"{100 * (bounds.index(bound) >= bounds.index(which))}x{count}"
            for step, (which, count) in enumerate(((before, 480), (after, 80)))
        )
        for bound in bounds
    }


def single(name: str, bad: str, good: str, at: str = "10m") -> Scene:
    return Scene({f"quorumlog_{name}": bad}, {f"quorumlog_{name}": good}, at)


SCENES = {
    # Fenced while it restarts: three samples, that is half a minute at most.
    "QuorumlogNodeFenced": single("fenced", "0x5 1x100", "0x5 1x1 0x100"),
    "QuorumlogPartitionsOffline": single("offline_partitions", "0x5 3x100", "0x38 3 0"),
    "QuorumlogTooFewInSync": single("under_min_isr_partitions", "0x39 1", "1x30 0x10"),
    "QuorumlogUnderReplicated": single("under_replicated_partitions", "0x5 8x100", "0x25 8x15"),
    "QuorumlogNoOneController": single("active_controller", "0x100", "1x100"),
    "QuorumlogMetadataUnreachable": single("metadata_leader_known", "1x5 0x100", "1x38 0 1"),
    "QuorumlogCertificateEnds": single("certificate_expiry_seconds", "1209000x100", "1210000x100"),
    "QuorumlogStorageNearlyFull": Scene(
        {"quorumlog_storage_used_bytes": "76x100", "quorumlog_storage_free_bytes": "24x100"},
        {"quorumlog_storage_used_bytes": "74x100", "quorumlog_storage_free_bytes": "26x100"},
    ),
    "QuorumlogSlowDisk": Scene(fsyncs("0.01", "0.25"), fsyncs("0.01", "0.05"), "135m"),
    "QuorumlogRequestsRefused": single("requests_refused_total", "0x30 5x10", "5x40"),
    "QuorumlogReplicasFallBehind": single("isr_shrinks_total", "0+1x400", "0x200 3x200", "50m"),
    "QuorumlogLeadersNotPreferred": single("leaders_not_preferred", "0x5 2x100", "0x25 2x15"),
    "QuorumlogOldTransaction": single("oldest_open_transaction_seconds", "0x5 601x100", "0x5 600x100"),
    "QuorumlogDamage": single("damaged_entries", "0x5 1x100", "0x25 1x15"),
}


def test_every_rule_has_a_scene() -> None:
    assert list(SCENES) == [rule["alert"] for rule in RULES]


@promtool
def test_promtool_finds_nothing_wrong_with_the_rules() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{len(RULES)} rules found" in done.stdout


@promtool
@pytest.mark.parametrize("alert", SCENES)
def test_an_alert_fires_for_the_cluster_in_trouble_alone(alert: str, tmp_path: Path) -> None:
    scene = SCENES[alert]
    series = []
    for job, exported in (("bad", scene.bad), ("good", scene.good)):
        for name, values in exported.items():
            labels = f'{{job="{job}",instance="{job}:19094",'
            named = name.replace("{", labels) if "{" in name else f"{name}{labels[:-1]}}}"
            series.append({"series": named, "values": values})
    firing = {
        "expr": 'count by (alertname, job) (ALERTS{alertstate="firing"})',
        "eval_time": scene.at,
        "exp_samples": [{"labels": f'{{alertname="{alert}",job="bad"}}', "value": 1}],
    }
    test = {"interval": INTERVAL, "input_series": series, "promql_expr_test": [firing]}
    page = tmp_path / "test.yml"
    # JSON is YAML.
    page.write_text(json.dumps({"rule_files": [str(ALERTS)], "evaluation_interval": INTERVAL, "tests": [test]}))
    done = subprocess.run(
        ["promtool", "test", "rules", str(page)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
