"""The structure of the code: limits on functions, constructors, imports and small modules, and a map for every folder.

``tests/house_exceptions.toml`` lists what breaks a rule today. The lists can only shrink: an entry that is no longer
needed fails, and so does one that has grown beyond its figure.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable

import house
import pytest

EXCEPTIONS = tomllib.loads((house.ROOT / "tests" / "house_exceptions.toml").read_text())
RULES: dict[str, Callable[[list[house.Module]], dict[str, int]]] = {
    "functions": house.long_functions,
    "constructors": house.long_constructors,
    "imports": house.wide_modules,
    "shards": house.shards,
}


@pytest.fixture(scope="module")
def code() -> list[house.Module]:
    return house.modules()


@pytest.fixture(scope="module")
def broken(code: list[house.Module]) -> dict[str, dict[str, int]]:
    """Rule -> what breaks it, and by which figure."""
    return {name: rule(code) for name, rule in RULES.items()}


def module(path: str, text: str) -> house.Module:
    return house.Module(path, "quorumlog." + path.removesuffix(".py").replace("/", "."), text)


@pytest.mark.parametrize("rule", RULES)
def test_code_keeps_the_limits(rule: str, broken: dict[str, dict[str, int]]) -> None:
    listed = EXCEPTIONS[rule]
    wrong = {
        name: f"{count}, listed as {listed[name]['most']}" if name in listed else count
        for name, count in broken[rule].items()
        if name not in listed or count > listed[name]["most"]
    }
    assert not wrong, f"{rule} beyond the limit; see tests/house.py"


@pytest.mark.parametrize("rule", RULES)
def test_no_exception_is_stale(rule: str, broken: dict[str, dict[str, int]]) -> None:
    assert not EXCEPTIONS[rule].keys() - broken[rule].keys(), "remove these from tests/house_exceptions.toml"


@pytest.mark.parametrize("rule", RULES)
def test_every_exception_has_a_reason(rule: str) -> None:
    assert all(exception["why"] for exception in EXCEPTIONS[rule].values())


def test_every_rule_is_enforced() -> None:
    assert EXCEPTIONS.keys() == RULES.keys()


def test_maps_name_every_module(code: list[house.Module]) -> None:
    assert house.missing_from_maps(code) == []


def test_maps_name_what_exists(code: list[house.Module]) -> None:
    assert house.gone_from_folders(code) == []


def test_a_class_name_is_defined_once() -> None:
    # Generated messages of Kafka count too; those of Protobuf have their own names in each file.
    everything = [each for each in house.all_modules() if "_pb2" not in each.path]
    assert house.names_of_several_classes(everything) == {}


def test_a_test_file_has_a_name_of_its_own() -> None:
    """pytest imports test files by their names alone, and refuses a second one of a name."""
    names = Counter(file.name for file in (house.ROOT / "tests").rglob("test_*.py"))
    assert [name for name, files in names.items() if files > 1] == []


def test_long_functions_are_noticed() -> None:
    body = "\n".join(f"        x = {number}" for number in range(house.MOST_LINES))
    text = f"class A:\n    def m(self):\n{body}\n"
    assert house.long_functions([module("raft/a.py", text)]) == {"raft/a.py::A.m": house.MOST_LINES + 1}


def test_long_constructors_are_noticed() -> None:
    text = "class A:\n    def __init__(self, a, b, c, d, *, e, f, g): ...\n"
    assert house.long_constructors([module("raft/a.py", text)]) == {"raft/a.py::A": 7}
    assert house.long_constructors([module("raft/a.py", text.replace(", g", ""))]) == {}


def test_wide_modules_are_noticed() -> None:
    others = [module(f"raft/m{number}.py", "") for number in range(house.MOST_IMPORTS + 1)]
    text = "".join(f"from quorumlog.raft import m{number}\n" for number in range(len(others)))
    assert house.wide_modules([*others, module("raft/a.py", text)]) == {"raft/a.py": house.MOST_IMPORTS + 1}


def test_shards_are_noticed() -> None:
    shard, one = module("raft/a.py", "X = 1\n"), module("raft/b.py", "from quorumlog.raft.a import X\n")
    assert house.shards([shard, one]) == {"raft/a.py": 1}
    assert house.shards([shard, one, module("raft/c.py", "import quorumlog.raft.a\n")]) == {}


def test_entry_points_are_not_shards() -> None:
    entry, one = module("cli/entry.py", ""), module("cli/b.py", "import quorumlog.cli.entry\n")
    assert house.shards([entry, one]) == {}


def test_gaps_in_maps_are_noticed() -> None:
    folder = module("raft/__init__.py", '"""A core.\n\n- `quorum`: majorities.\n- `gone`: nothing.\n"""\n')
    assert house.missing_from_maps([folder, module("raft/quorum.py", ""), module("raft/log.py", "")]) == ["raft/log.py"]
    assert house.gone_from_folders([folder]) == ["raft: gone"]


def test_no_failed_test_waits_for_its_child() -> None:
    waits = re.compile(r"with (subprocess\.)?Popen\(")
    wrong = [
        str(path.relative_to(house.ROOT))
        for path in sorted((house.ROOT / "tests").rglob("*.py"))
        if waits.search(path.read_text())
    ]
    assert not wrong, "the block of Popen waits without a limit: use tests/support/child_process.py"
