"""Commands, run in this process against the module's cluster, right and wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from quorumlog.cli.main import main
from quorumlog.local import LocalCluster


@pytest.fixture
def command_group() -> tuple[str, ...]:
    """Returns the arguments with which every command of a module starts."""
    return ()


@pytest.fixture
def outcome(
    command_group: tuple[str, ...],
    quorumlog_cluster: LocalCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., tuple[int, str, str]]:
    """Runs a command: exit status, what it printed, what it complained of."""
    monkeypatch.setenv("QUORUMLOG_BOOTSTRAP_SERVERS", quorumlog_cluster.bootstrap_servers)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)  # Also where pytest itself has one.

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([*command_group, *arguments])
        printed = capsys.readouterr()
        status = ended.value.code
        return status if isinstance(status, int) else 0, printed.out, printed.err

    return run


@pytest.fixture
def run(outcome: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Runs a command that succeeds; returns what it printed."""

    def succeed(*arguments: str) -> str:
        status, printed, complaint = outcome(*arguments)
        assert (status, complaint) == (0, "")
        return printed

    return succeed


@pytest.fixture
def refuse(outcome: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Runs a command that fails with a status; returns its one line of complaint."""

    def fail(status: int, *arguments: str) -> str:
        got, printed, complaint = outcome(*arguments)
        assert (got, printed) == (status, ""), complaint
        [line] = complaint.splitlines()
        assert line.startswith("quorumlog: ")
        assert "internal error" not in line
        return line

    return fail
