"""Fixtures of all tests: the plugins' tester, and the scenarios' numbers (docs/internals/raft.md, the table).

``pytest --scenario 15`` runs what plays scenario 15, ``--scenario 15b`` one of its stories, ``--scenario all`` every
test with a number.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from quorumlog.pure import is_compiled

pytest_plugins = ["pytester"]

SPARK = "tests/spark/"
#: Tests of Spark whose sessions are in processes of their own.
SPARK_APART = ("tests/spark/test_on_cluster.py", "tests/spark/test_packaging.py")
#: Tests of Spark that share a second session: about half of the time.
SPARK_SECOND = tuple(
    f"{SPARK}test_{name}.py" for name in ("batch_read", "filter_pushdown", "pipelines", "spark_bench", "spark_errors")
)
#: What lasts the longest is started first: otherwise one worker has a long file left when the others are done.
STARTED_FIRST = (
    *SPARK_APART,
    SPARK,
    "tests/integration/test_runbook.py",
    "tests/packaging/test_distributions.py",
    "tests/chaos/test_scenarios.py",
    "tests/chaos/test_hostile_clients.py",
    "tests/test_readme.py",
    "tests/cli/test_cli_cluster.py",
    "tests/console/test_playground.py",
)

#: A file system in memory, and the room that it must have for all that the tests of one run keep at a time.
IN_MEMORY = Path("/dev/shm")
IN_MEMORY_BYTES = 6 << 30
#: The marks by which the Makefile selects tests.
SELECTED_BY = {"alone", "chaos", "cluster", "spark", "thorough"}
#: The names in an expression of ``-m``, and the marks that a file gives to tests.
NAME = re.compile(r"\w+")
MARK = re.compile(r"\bmark\.(\w+)")

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


def keep_files_in_memory() -> None:
    """Puts temporary files where a sync costs nothing: no test cuts the power, and disks are what tests wait for."""
    if "TMPDIR" in os.environ or not IN_MEMORY.is_dir() or shutil.disk_usage(IN_MEMORY).free < IN_MEMORY_BYTES:
        return
    os.environ["TMPDIR"] = str(IN_MEMORY)  # for the processes that tests start, and for the other workers
    tempfile.tempdir = None  # It is determined again.


def pytest_configure(config: pytest.Config) -> None:
    keep_files_in_memory()
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
    """Restores the handlers of the clients' logger. A command that runs in this process sends the clients' warnings to
    stderr and nowhere else: a later test would see warnings of threads that it has not started, and miss its own."""
    clients = logging.getLogger("quorumlog.sdk")
    handlers, propagates = list(clients.handlers), clients.propagate
    yield
    clients.handlers[:], clients.propagate = handlers, propagates


@pytest.fixture(scope="session", autouse=True)
def nodes_are_forked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Forks the nodes of all tests from processes that have imported the server: nine tenths of a start are imports.
    Tests of what a node is to the system around it use ``separate_nodes``."""
    if not any(
        item.get_closest_marker(mark) for item in request.session.items for mark in ("cluster", "chaos", "spark")
    ):
        yield
        return
    from quorumlog.local.node_spawner import forked_nodes  # Half of the tests start nothing.

    with forked_nodes():
        yield


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skips a file of which ``-m`` selects nothing: to import all of them takes every worker ten seconds."""
    if collection_path.suffix != ".py" or not config.option.markexpr:
        return None
    return None if may_select(config.option.markexpr, collection_path.read_text()) else True


def may_select(expression: str, source: str) -> bool:
    """Returns False if no test can have marks that the expression selects, whichever of its file's marks it has."""
    try:
        selects = Expression.compile(expression)
    except SyntaxError:  # pytest reports it.
        return True
    given = sorted(set(NAME.findall(expression)) & set(MARK.findall(source)))
    some = (combination for count in range(len(given) + 1) for combination in combinations(given, count))
    return any(selects.evaluate(lambda name, /, *, marks=marks, **_: name in marks) for marks in some)


def require_marks_in_files(items: list[pytest.Item]) -> None:
    """Checks that a file has the names of its tests' marks: ``may_select`` looks for them there.

    Raises:
        UsageError: a test has a mark whose name is only in another file.
    """
    named = {path: set(MARK.findall(path.read_text())) for path in {item.path for item in items}}
    for item in items:
        for mark in item.iter_markers():
            if mark.name in SELECTED_BY and mark.name not in named[item.path]:
                raise pytest.UsageError(f"{item.nodeid}: write pytest.mark.{mark.name} in its own file")


def pytest_collection_finish() -> None:
    """Keeps what was collected out of all further garbage collections."""
    gc.collect()
    gc.freeze()


class TwoSparkSessions(LoadFileScheduling):
    """Each file's tests go to one worker, and all that share a session of Spark's to the same: they last the longest.

    (Marks of the group a test belongs to do not reach xdist 3.8 under pytest 9.)
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        if not file.startswith(SPARK) or file in SPARK_APART:
            return file
        return SPARK if file in SPARK_SECOND else f"{SPARK}first"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> TwoSparkSessions | None:
    return TwoSparkSessions(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    require_marks_in_files(items)
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
        intended = bool(stories) if wanted == ["all"] else not (stories | numbers).isdisjoint(wanted)
        (chosen if intended else rest).append(item)
    if not chosen:
        raise pytest.UsageError(f"no test plays scenario {', '.join(wanted)}; docs/internals/raft.md lists them")
    items[:] = chosen
    config.hook.pytest_deselected(items=rest)
