"""The units for systemd are those that the pages show, start existing commands, and restrict them."""

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
MIRROR_UNIT = ROOT / "packaging/quorumlog-mirror@.service"
MIRROR_PAGE = (ROOT / "docs/use/mirror.md").read_text()
OPERATIONS = (ROOT / "docs/operate/operations.md").read_text()
#: Tenths: systemd calls below 5.0 well protected; a change that takes protection away has to say so here.
MOST_EXPOSED = 20

systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def service_of(unit: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(unit.read_text())
    return parser["Service"]


@pytest.fixture
def service() -> configparser.SectionProxy:
    return service_of(UNIT)


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


def test_the_unit_of_a_mirror_starts_it_with_its_options() -> None:
    """The name of the instance is that of the mirror; the file of options is the one on the page."""
    service = service_of(MIRROR_UNIT)
    program, *words = shlex.split(service["ExecStart"])
    assert program == shlex.split(service_of(UNIT)["ExecStart"])[0]
    assert words == ["mirror", "--follow", "--name", "%i", "$MIRROR_OPTIONS"]
    (given,) = re.findall(r"^MIRROR_OPTIONS=(.*)$", MIRROR_PAGE, re.M)
    options = {name for option in COMMAND.commands["mirror"].params for name in option.opts}
    assert {word for word in [*words, *shlex.split(given)] if word.startswith("--")} <= options
    assert service["EnvironmentFile"].replace("%i", "NAME") in MIRROR_PAGE
    assert MIRROR_UNIT.name in MIRROR_PAGE


def test_a_mirror_is_restarted_and_restricted_like_a_node() -> None:
    mirror, node = service_of(MIRROR_UNIT), service_of(UNIT)
    assert mirror["Restart"] == "on-failure"
    # The last options of a node's unit take privileges away.
    privileges = list(node)[list(node).index("AmbientCapabilities") :]
    assert {name: mirror[name] for name in privileges} == {name: node[name] for name in privileges}


UNITS = pytest.mark.parametrize("unit", [UNIT, MIRROR_UNIT], ids=lambda unit: unit.name)


@systemd
@UNITS
def test_systemd_knows_every_line(unit: Path, tmp_path: Path) -> None:
    """Only the command is exchanged, and the page of the manual, for both are not installed here."""
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={shutil.which('true')}", unit.read_text(), flags=re.M)
    copy = tmp_path / unit.name.replace("@", "@kafka")
    copy.write_text(re.sub(r"^Documentation=.*\n", "", text, flags=re.M))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@systemd
@UNITS
def test_systemd_finds_little_to_take_away(unit: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout.splitlines()[-1]
