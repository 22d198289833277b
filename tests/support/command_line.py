"""The command line beside real nodes, and waiting for what it brings about."""

from __future__ import annotations

import re
import secrets
import subprocess
import sys
import time
from collections.abc import Callable

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, NewTopic

#: What a command says on stderr while it waits for moves, where nothing has got on for ten seconds.
_WAITS = re.compile(r"^\d+ partitions? left: .*\n", re.M)
#: Longer than all of it takes on a machine that does other things as well.
PATIENCE_S = 60


def until(reached: Callable[[], object], what: str) -> None:
    """Waits until it is so.

    Raises:
        AssertionError: it is not within ``PATIENCE_S``.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, f"{what}: not after {PATIENCE_S} s"
        time.sleep(0.02)


def leader_of(cluster: LocalCluster, topic: str | None = None, partition: int = 0) -> int:
    """The node that leads a partition, or without a topic the active controller, once there is one: a busy machine has
    elections now and then.

    Raises:
        AssertionError: none exists within ``PATIENCE_S``.
    """
    deadline = time.monotonic() + PATIENCE_S
    while (found := cluster.leader(topic, partition)) is None:
        assert time.monotonic() < deadline, f"nobody leads {topic or 'the cluster'} for {PATIENCE_S} s"
        time.sleep(0.02)
    return found


def all_have_heard(admin: Admin) -> None:
    """Waits until every node knows the users, rules and quotas that were made before.

    Nodes hear of changes one after the other, each of all changes in their order. Who creates a topic waits for all of
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


def complaints(ended: subprocess.CompletedProcess[str]) -> str:
    """Returns the stderr of a command without the lines about moves that it waits for: their number depends on the
    machine."""
    return _WAITS.sub("", ended.stderr)
