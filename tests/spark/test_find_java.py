"""Finding Java: the machine's own where it suffices, otherwise the one from PyPI."""

import os
import subprocess
from pathlib import Path

import pytest

from quorumlog.sdk.spark import java
from quorumlog.sdk.spark.errors import JavaError


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-01' >&2\n")
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(("text", "major"), [("17.0.15", 17), ("25", 25), ("1.8.0_402", 8), ("21-ea", 21)])
def test_versions_are_read_as_java_prints_them(tmp_path: Path, text: str, major: int) -> None:
    assert java.java_version(fake_java(tmp_path / "home", text)) == major


def test_java_home_is_taken_when_it_is_new_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "new", "21.0.1")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "path", "17.0.1") / "bin"))
    assert java.find_java_home() == tmp_path / "new"


def test_java_on_the_path_serves_when_java_home_is_too_old(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.1")))
    home = fake_java(tmp_path / "path", "17.0.1")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    assert java.find_java_home() == home


def test_without_java_the_bundled_one_runs_and_ignores_the_module_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    home = java.find_java_home()
    assert home == java.find_java_home()
    flags = ["--add-modules=jdk.incubator.vector", "-Dtext=a b", "-XshowSettings:properties", "-version"]
    monkeypatch.setenv("PATH", os.defpath)
    shown = subprocess.run([str(home / "bin" / "java"), *flags], capture_output=True, text=True, check=True, timeout=60)
    assert "text = a b" in shown.stderr
    assert (java.java_version(home) or 0) >= java.OLDEST


def test_an_unwritable_cache_is_no_obstacle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    assert (java.find_java_home() / "bin" / "java").exists()


def test_no_java_at_all_is_said_with_what_was_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8.0_1")))
    monkeypatch.setattr(java, "_bundled_java", lambda: None)
    with pytest.raises(JavaError, match=r"Java 17 or newer .*JAVA_HOME has .*old \(Java 8\).*quorumlog\[spark\]"):
        java.find_java_home()
