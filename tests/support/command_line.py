"""The command line beside real nodes, and waiting for what it brings about."""

from __future__ import annotations

import io
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

from quorumlog.cli.main import main
from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic

#: What a command says on stderr while it waits for moves, where nothing has got on for ten seconds.
_WAITS = re.compile(r"^\d+ partitions? left: .*\n", re.M)
#: Longer than all of it takes on a machine that also does other things.
PATIENCE_S = 60


def until(reached: Callable[[], object], what: str = "the condition") -> None:
    """Waits until it is so.

    Raises:
        AssertionError: it is not within ``PATIENCE_S``.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, f"{what}: not after {PATIENCE_S} s"
        time.sleep(0.05)


def leader_of(cluster: LocalCluster, topic: str | None = None, partition: int = 0) -> int:
    """The node that leads a partition, or without a topic the active controller, once there is one: a busy machine has
    elections now and then.

    Raises:
        AssertionError: none exists within ``PATIENCE_S``.
    """
    deadline = time.monotonic() + PATIENCE_S
    while (found := cluster.leader(topic, partition)) is None:
        assert time.monotonic() < deadline, f"no node leads {topic or 'the cluster'} for {PATIENCE_S} s"
        time.sleep(0.02)
    return found


def all_have_heard(admin: Admin) -> None:
    """Waits until every node has the users, rules and quotas that were made before.

    Nodes apply changes one after the other, each of all changes in their order. Who creates a topic waits for all of
    them, and who makes a user does not.
    """
    admin.create_topics([NewTopic(f"heard-{secrets.token_hex(8)}", 1, 1)])


def cli(cluster: LocalCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of ``quorumlog`` against a cluster."""
    return subprocess.run(
        [sys.executable, "-m", "quorumlog.cli.main", *arguments, "-b", cluster.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def cli_here(cluster: LocalCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command of ``quorumlog`` in this process: one that is repeated until it shows something needs no process
    of its own, whose start takes ten times longer than the command."""
    command = [*arguments, "-b", cluster.bootstrap_servers]
    with redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()) as complaint:
        try:
            main(command)
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else 0
    return subprocess.CompletedProcess(command, status, printed.getvalue(), complaint.getvalue())


def complaints(ended: subprocess.CompletedProcess[str]) -> str:
    """Returns the stderr of a command without the lines about moves that it waits for: their number depends on the
    machine."""
    return _WAITS.sub("", ended.stderr)
