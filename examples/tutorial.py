"""Code that the examples share: ``--help``, and a cluster to run on, either given or started for the example."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, ConsumerRecord, NewTopic, QuorumlogError


def run(story: Callable[[str], None], about: str | None) -> None:
    """Runs an example from the command line.

    Arguments:
        story: the example; its argument is the bootstrap servers.
        about: the text of ``--help``.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT[,…]",
        help="use this running cluster; default: start three nodes for the example and remove them afterwards",
    )
    servers = parser.parse_args().bootstrap_servers
    try:
        with contextlib.ExitStack() as resources:
            if servers is None:
                print("Starting three nodes …")
                servers = resources.enter_context(LocalCluster(nodes=3)).bootstrap_servers
            story(servers)
    except QuorumlogError as error:
        sys.exit(f"{type(error).__name__}: {error}")


@contextlib.contextmanager
def topic(servers: str, name: str, partitions: int = 1, **configs: object) -> Iterator[str]:
    """Creates a topic for a ``with`` block. Underscores in the names of settings stand for dots."""
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, num_partitions=partitions, topic_configs=settings)])
        try:
            yield name
        finally:
            admin.delete_topics([name])


def read(members: Sequence[Consumer], until: Callable[[], bool]) -> Iterator[tuple[Consumer, ConsumerRecord]]:
    """Polls consumers in turn until a condition holds, at most 30 seconds; yields each consumer with its record.

    One after the other, for the sake of a short example: members of a group are threads, processes, machines.
    """
    deadline = time.monotonic() + 30
    while not until():
        assert time.monotonic() < deadline, "the story does not continue"
        for member in members:
            for records in member.poll(timeout_ms=20).values():
                for record in records:
                    yield member, record


def settle(members: Sequence[Consumer], *counts: int) -> None:
    """Polls members of a group until they have these numbers of partitions, in any order; no records may arrive."""
    for _, record in read(members, lambda: sorted(len(member.assignment()) for member in members) == sorted(counts)):
        raise AssertionError(f"nothing has been sent yet, and here is {record}")
