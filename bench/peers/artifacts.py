"""Jars from Maven: resolved once by ``mvn``, kept under ``build/peers``, and checked against the checksums here."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.peers.server_processes import PeerError

_HERE = Path(__file__).resolve().parent
#: Everything that peers need beside what the machine has: jars, and the environment of the clients.
HOME = _HERE.parent.parent / "build" / "peers"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_TIMEOUT_S = 900
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>{name}</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>
  </dependencies>
</project>
"""


@dataclass(slots=True, frozen=True)
class JarSet:
    """An artifact with all that it needs at run time.

    Arguments:
        name: of its folder, and of the file with its checksums, ``NAME.sha256`` beside this module.
        excluded: artifacts that the user of the jars has already.
    """

    name: str
    group: str
    artifact: str
    version: str
    excluded: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of its jars, which need not exist."""
        return HOME / f"{self.name}-{self.version}"

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 of each jar, by file name."""
        return parse_checksums((_HERE / f"{self.name}.sha256").read_text())

    def missing(self) -> str:
        """The error in the jars that exist; empty if there is no error."""
        if not self.folder.is_dir():
            return f"jars of {self.artifact} {self.version} (make bench-peers downloads them; it needs Maven's mvn)"
        wrong = differences(self.checksums, jar_digests(self.folder))
        return f"jars of {self.artifact} {self.version} as pinned: {'; '.join(wrong)}" if wrong else ""

    def download(self) -> None:
        """Has Maven bring them.

        Raises:
            PeerError: there is no Maven, it failed, or the jars are not those that were pinned.
        """
        if shutil.which("mvn") is None:
            raise PeerError(f"the jars of {self.artifact} come by Maven: install it (Debian: apt-get install maven)")
        draft = self.folder.with_name(f"{self.folder.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        pom = draft / "pom.xml"
        pom.write_text(_POM.format(name=self.name, group=self.group, artifact=self.artifact, version=self.version))
        command = ["mvn", "-q", "-B", "-f", str(pom), _COPY, f"-DoutputDirectory={draft}", "-DincludeScope=runtime"]
        if self.excluded:
            command.append(f"-DexcludeArtifactIds={','.join(self.excluded)}")
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if ended.returncode:
            said = [line for line in ended.stdout.splitlines() if "ERROR" in line] or ["[ERROR] nothing was said"]
            raise PeerError(f"Maven did not bring {self.artifact} {self.version}: {said[0].strip()}")
        wrong = differences(self.checksums, jar_digests(draft))
        if wrong:
            raise PeerError(f"{self.artifact} {self.version} is not what was pinned: {'; '.join(wrong)}")
        shutil.rmtree(self.folder, ignore_errors=True)
        draft.rename(self.folder)


def jar_digests(folder: Path) -> dict[str, str]:
    """SHA-256 of each jar in a folder, by file name."""
    return {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in sorted(folder.glob("*.jar"))}


def parse_checksums(text: str) -> dict[str, str]:
    """Lines as ``sha256sum`` writes them, by file name."""
    found = {}
    for line in text.splitlines():
        digest, name = line.split()
        found[name] = digest
    return found


def differences(pinned: dict[str, str], found: dict[str, str]) -> list[str]:
    """Returns the differences from the pinned artifacts, in words."""
    both = sorted(pinned.keys() & found.keys())
    return [
        *(f"{name} is absent" for name in sorted(pinned.keys() - found.keys())),
        *(f"{name} is not pinned" for name in sorted(found.keys() - pinned.keys())),
        *(f"{name} has another checksum" for name in both if pinned[name] != found[name]),
    ]


def fetch(wanted: Iterable[JarSet]) -> int:
    """Downloads what is missing; returns the exit status."""
    for jars in wanted:
        if not jars.missing():
            continue
        print(f"downloading {jars.artifact} {jars.version} into {jars.folder}", flush=True)
        try:
            jars.download()
        except PeerError as problem:
            print(f"bench: {problem}", file=sys.stderr)
    return 0
