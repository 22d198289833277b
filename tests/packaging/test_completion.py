"""bash, zsh and fish complete what was started to be typed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.readme_tour import ROOT

COMPLETION = ROOT / "packaging/completion"
#: What is typed, and what it may become: a family, a command of it, an option.
PREFIXES = {
    "quorumlog top": {"topics"},
    "quorumlog topics de": {"delete", "delete-records", "describe"},
    "quorumlog topics create --co": {"--config"},
}

BASH = """
source {folder}/quorumlog
COMP_WORDS=({typed}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_quorumlog_completion quorumlog
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
# Outside of its line editor, zsh does not complete: what it would offer is printed.
ZSH = """
_arguments() {{ print -r -- "$1" }}
words=({typed}); CURRENT=${{#words}}
source {folder}/_quorumlog
"""
FISH = """
source {folder}/quorumlog.fish
complete --do-complete '{typed}'
"""


def offered(shell: list[str], script: str, typed: str) -> str:
    """Returns the completions that a shell would offer."""
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [*shell, "-c", script.format(folder=COMPLETION, typed=typed)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("typed", PREFIXES)
def test_bash_completes(typed: str) -> None:
    assert set(offered(["bash", "--norc"], BASH, typed).split()) == PREFIXES[typed]


@pytest.mark.parametrize("typed", PREFIXES)
def test_zsh_completes(typed: str) -> None:
    choices = offered(["zsh", "-f"], ZSH, typed)
    assert set(re.findall(r'"([\w-]+)":"', choices)) == PREFIXES[typed]


@pytest.mark.parametrize("typed", PREFIXES)
def test_fish_completes(typed: str) -> None:
    lines = offered(["fish", "--no-config"], FISH, typed).splitlines()
    assert {line.split("\t")[0] for line in lines} == PREFIXES[typed]
