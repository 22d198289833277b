"""What all tests share: the plugins' tester, and the scenarios' numbers (docs/raft.md, the table).

``pytest --scenario 15`` runs what plays scenario 15, ``--scenario 15b`` one of its stories, ``--scenario all`` every
test with a number.
"""

from __future__ import annotations

import signal

import pytest

pytest_plugins = ["pytester"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--scenario", default="", metavar="NUMBER", help="run the tests of these scenarios only: 15, 15b, 3,18 or all"
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell's background jobs ignore Ctrl-C, and so would every process that a test starts and interrupts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = [name for name in str(config.getoption("--scenario")).split(",") if name]
    if not wanted:
        return
    chosen, rest = [], []
    for item in items:
        stories = {story for mark in item.iter_markers("scenario") for story in mark.args}
        numbers = {story.rstrip("abcdefgh") for story in stories}
        meant = bool(stories) if wanted == ["all"] else not (stories | numbers).isdisjoint(wanted)
        (chosen if meant else rest).append(item)
    if not chosen:
        raise pytest.UsageError(f"no test plays scenario {', '.join(wanted)}; docs/raft.md lists them")
    items[:] = chosen
    config.hook.pytest_deselected(items=rest)
