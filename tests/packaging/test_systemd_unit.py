"""The unit for systemd is the one in docs/operate/operations.md, starts an existing command, and restricts it."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from quorumlog.server.config.settings import Settings
from quorumlog.server.process.runtime import STOP_MARGIN_S
from tests.support.readme_tour import ROOT
from tests.test_documents import COMMAND

UNIT = ROOT / "packaging/quorumlog.service"
OPERATIONS = (ROOT / "docs/operate/operations.md").read_text()
#: Tenths: systemd calls below 5.0 well protected; a change that takes protection away has to say so here.
MOST_EXPOSED = 20

systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@pytest.fixture
def service() -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(UNIT.read_text())
    return parser["Service"]


def test_operations_shows_the_unit_as_it_is() -> None:
    (shown,) = re.findall(r"^```ini\n(.*?)^```$", OPERATIONS, re.M | re.S)
    assert shown == UNIT.read_text()


def test_the_unit_starts_a_command_with_the_file_that_operations_shows(service: configparser.SectionProxy) -> None:
    program, *words = shlex.split(service["ExecStart"])
    (file,) = re.findall(r"`(/\S+\.toml)` of the first machine", OPERATIONS)
    assert f"python3 -m venv {Path(program).parent.parent}" in OPERATIONS
    assert words == ["node", "start", "--config", file]
    options = COMMAND.commands["node"].commands["start"].params
    assert "--config" in {name for option in options for name in option.opts}


def test_the_directory_of_the_unit_is_the_one_of_the_file(service: configparser.SectionProxy) -> None:
    assert f'data_dir = "/var/lib/{service["StateDirectory"]}"' in OPERATIONS
    assert service["ProtectSystem"] == "strict"


def test_a_node_has_time_to_hand_over_before_it_is_killed(service: configparser.SectionProxy) -> None:
    longest_s = Settings.model_fields["stop_timeout_ms"].default / 1_000 + STOP_MARGIN_S
    assert float(service["TimeoutStopSec"]) > longest_s


def test_a_node_that_waits_for_the_others_is_not_killed(service: configparser.SectionProxy) -> None:
    assert (service["Type"], service["TimeoutStartSec"]) == ("notify", "infinity")


@systemd
def test_systemd_knows_every_line(tmp_path: Path) -> None:
    """Only the command is exchanged, and the page of the manual, for both are not installed here."""
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={shutil.which('true')}", UNIT.read_text(), flags=re.M)
    unit = tmp_path / "quorumlog.service"
    unit.write_text(re.sub(r"^Documentation=.*\n", "", text, flags=re.M))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@systemd
def test_systemd_finds_little_to_take_away() -> None:
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}", str(UNIT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout.splitlines()[-1]
