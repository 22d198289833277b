"""What the examples share: ``--help``, and a cluster to run on, given or started for the occasion."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator

from quorumlog.sdk import Admin, NewTopic, QuorumlogError
from quorumlog.server.local import LocalCluster


def run(story: Callable[[str], None], about: str | None) -> None:
    """Runs an example from the command line.

    Arguments:
        story: the example; it is told where the cluster is.
        about: what ``--help`` says.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT[,…]",
        help="a cluster that is running; without it three nodes are started for the example, and removed after it",
    )
    given = parser.parse_args().bootstrap_servers
    try:
        with contextlib.ExitStack() as resources:
            if given is None:
                print("Starting three nodes …")
                given = resources.enter_context(LocalCluster(nodes=3)).bootstrap_servers
            story(given)
    except QuorumlogError as error:
        sys.exit(f"{type(error).__name__}: {error}")


@contextlib.contextmanager
def topic(servers: str, name: str, partitions: int = 1, **configs: object) -> Iterator[str]:
    """A topic for the time of a ``with`` block. Underscores in the names of settings stand for dots."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, num_partitions=partitions, topic_configs=settings)])
        try:
            yield name
        finally:
            admin.delete_topics([name])
