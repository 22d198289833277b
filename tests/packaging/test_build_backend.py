"""The build backend compiles wheels where that is possible, and builds pure ones otherwise."""

from __future__ import annotations

import importlib.util
import os
import tomllib
from collections.abc import Callable
from types import ModuleType

import pytest
from packaging.requirements import Requirement

from tests.support.readme_tour import ROOT


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The backend, on a machine with a C compiler and mypyc, where no choice was made."""
    spec = importlib.util.spec_from_file_location("build_backend", ROOT / "packaging/build_backend.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.delenv("QUORUMLOG_COMPILE", raising=False)
    monkeypatch.setattr(module, "_has_compiler", lambda: True)
    return module


def building(monkeypatch: pytest.MonkeyPatch, backend: ModuleType, fails: BaseException | None = None) -> list[str]:
    """Replaces the build by one that may fail when it has to compile; returns the choices that it is called with."""
    choices: list[str] = []

    def build_wheel(*_: object) -> str:
        choices.append(os.environ["QUORUMLOG_COMPILE"])
        if fails is not None and choices[-1] == "1":
            raise fails
        return "a.whl"

    monkeypatch.setattr(backend.build_meta, "build_wheel", build_wheel)
    return choices


def test_compilers_make_compiled_wheels(monkeypatch: pytest.MonkeyPatch, backend: ModuleType) -> None:
    choices = building(monkeypatch, backend)
    assert (backend.build_wheel("."), choices) == ("a.whl", ["1"])
    assert "QUORUMLOG_COMPILE" not in os.environ


@pytest.mark.parametrize("failure", [SystemExit("mypy found errors"), OSError("the compiler crashed")])
def test_failed_compilation_makes_pure_wheels(
    monkeypatch: pytest.MonkeyPatch, backend: ModuleType, failure: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    choices = building(monkeypatch, backend, failure)
    assert (backend.build_wheel("."), choices) == ("a.whl", ["1", "0"])
    assert capsys.readouterr().err == f"quorumlog: compiling has failed ({failure}); the wheel is pure Python\n"
    assert "QUORUMLOG_COMPILE" not in os.environ


@pytest.mark.parametrize("missing", ["_has_compiler", "find_spec"])
def test_missing_tools_make_pure_wheels(monkeypatch: pytest.MonkeyPatch, backend: ModuleType, missing: str) -> None:
    """Without isolation, mypyc need not be there."""
    choices = building(monkeypatch, backend)
    absent: Callable[..., None] = lambda *_: None  # noqa: E731
    monkeypatch.setattr(backend, missing, absent)
    assert (backend.build_wheel("."), choices) == ("a.whl", ["0"])


def test_requested_compilation_may_fail(monkeypatch: pytest.MonkeyPatch, backend: ModuleType) -> None:
    monkeypatch.setenv("QUORUMLOG_COMPILE", "1")
    choices = building(monkeypatch, backend, SystemExit("no compiler"))
    with pytest.raises(SystemExit):
        backend.build_wheel(".")
    assert choices == ["1"]


def test_requirements_follow_the_choice(monkeypatch: pytest.MonkeyPatch, backend: ModuleType) -> None:
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {Requirement(each).name for each in backend.get_requires_for_build_wheel()}
    assert {Requirement(each).name for each in described["project"]["dependencies"]} | {"mypy"} <= needed
    monkeypatch.setattr(backend, "_has_compiler", lambda: False)
    assert backend.get_requires_for_build_wheel() == []
    monkeypatch.setenv("QUORUMLOG_COMPILE", "1")
    assert {Requirement(each).name for each in backend.get_requires_for_build_wheel()} == needed
    monkeypatch.setenv("QUORUMLOG_COMPILE", "0")
    assert backend.get_requires_for_build_wheel() == []


def test_compilers_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("build_backend", ROOT / "packaging/build_backend.py")
    assert spec is not None and spec.loader is not None
    backend = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(backend)
    monkeypatch.setenv("CC", "/nowhere/cc -O2")
    assert not backend._has_compiler()
