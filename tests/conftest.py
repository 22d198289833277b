"""Fixtures of all tests: the plugins' tester, and the scenarios' numbers (docs/internals/raft.md, the table).

``pytest --scenario 15`` runs what plays scenario 15, ``--scenario 15b`` one of its stories, ``--scenario all`` every
test with a number.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from quorumlog.pure import is_compiled

pytest_plugins = ["pytester"]

SPARK = "tests/spark/"
#: What lasts the longest is started first: otherwise one worker has a long file left when the others are done.
STARTED_FIRST = (
    SPARK,
    "tests/integration/test_runbook.py",
    "tests/packaging/test_distributions.py",
    "tests/chaos/test_scenarios.py",
    "tests/chaos/test_hostile_clients.py",
    "tests/test_readme.py",
    "tests/cli/test_cli_cluster.py",
    "tests/console/test_playground.py",
)

# How long an example takes says how busy the machine is, and nothing of what is tested.
settings.register_profile("at leisure", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("at leisure")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--scenario", default="", metavar="NUMBER", help="run the tests of these scenarios only: 15, 15b, 3,18 or all"
    )


def is_of_somebody(record: logging.LogRecord) -> bool:
    """True if asyncio reports something that a test can prevent.

    All event loops of a process share gRPC's one queue of what is completed, and the thread of the clients that an
    earlier test has used still runs one: the loop that comes second to an event finds nothing to read, and what comes
    for a loop that has ended has nowhere to go. Both are reported as errors, of whichever test is running.
    """
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, BlockingIOError) and "loop is closed" not in str(error)


def pytest_configure(config: pytest.Config) -> None:
    logging.getLogger("asyncio").addFilter(is_of_somebody)
    # A shell's background jobs ignore Ctrl-C, and so would every process that a test starts and interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Until 3.12.2 (its issue 106905), CPython may lose count of the depth of a syntax tree and raise SystemError.
    # The tracebacks of pytest itself parse the source: one failing test would end the whole run.
    if sys.version_info < (3, 12, 2) and config.option.tbstyle == "auto":
        config.option.tbstyle = "native"


@pytest.fixture(autouse=True)
def clients_warn_where_they_did() -> Iterator[None]:
    """A command that runs in this process has all that clients warn of said on stderr, and said nowhere else: a test
    that comes after it would be told of by threads that it has not started, and would not hear of its own."""
    clients = logging.getLogger("quorumlog.sdk")
    handlers, propagates = list(clients.handlers), clients.propagate
    yield
    clients.handlers[:], clients.propagate = handlers, propagates


class OneSparkSession(LoadFileScheduling):
    """Each file's tests go to one worker, and all of Spark's to the same: they share a session, and last the longest.

    (Marks of the group a test belongs to do not reach xdist 3.8 under pytest 9.)
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return SPARK if file.startswith(SPARK) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneSparkSession | None:
    return OneSparkSession(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    choose_scenarios(config, items)
    if is_compiled():
        for item in items:
            for mark in item.iter_markers("interpreted"):
                item.add_marker(pytest.mark.skip(f"interpreted only: it {mark.args[0]}"))
    items.sort(key=place_in_queue)


def place_in_queue(item: pytest.Item) -> int:
    """Returns how many kinds of tests are started before this one's."""
    places = (place for place, start in enumerate(STARTED_FIRST) if item.nodeid.startswith(start))
    return next(places, len(STARTED_FIRST))


def choose_scenarios(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Those of ``--scenario``.

    Raises:
        UsageError: no test plays it.
    """
    wanted = [name for name in str(config.getoption("--scenario")).split(",") if name]
    if not wanted:
        return
    chosen, rest = [], []
    for item in items:
        stories = {story for mark in item.iter_markers("scenario") for story in mark.args}
        numbers = {story.rstrip("abcdefghi") for story in stories}
        meant = bool(stories) if wanted == ["all"] else not (stories | numbers).isdisjoint(wanted)
        (chosen if meant else rest).append(item)
    if not chosen:
        raise pytest.UsageError(f"no test plays scenario {', '.join(wanted)}; docs/internals/raft.md lists them")
    items[:] = chosen
    config.hook.pytest_deselected(items=rest)
