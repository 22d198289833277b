"""Fetches the console's JavaScript libraries into ``console/static/vendor``, which is committed.

python tools/vendor.py          # fetch again what is pinned below; needs npm
python tools/vendor.py --check  # only compare the files with vendored.json; needs nothing

Nothing is fetched when quorumlog is installed or run. A new version is pinned here with the sha512 of its package, as
``npm view NAME@VERSION dist.integrity`` says it, and comes with a look at what has changed in it.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENDOR = ROOT / "console" / "static" / "vendor"
RECORD = VENDOR / "vendored.json"
NOTICE = ROOT / "NOTICE"
PREFACE = """quorumlog
Licensed under the Apache License, Version 2.0 (see LICENSE).

proto/kafka contains the message schemas of Apache Kafka 4.3.1 (Apache-2.0), from which tools/kafka_codec.py generates
server/kafka/codec:

Apache Kafka
Copyright 2026 The Apache Software Foundation.

This product includes software developed at
The Apache Software Foundation (https://www.apache.org/).

The web console contains the libraries below, fetched by tools/vendor.py.
console/static/vendor/vendored.json has their versions and hashes.
"""


@dataclass(slots=True, frozen=True)
class Library:
    """A pinned package.

    Arguments:
        sha512: of its tarball, in base64.
        files: what is taken of it, path in the package -> name here.
    """

    name: str
    version: str
    licence: str
    sha512: str
    files: dict[str, str]


LIBRARIES = (
    Library(
        "preact",
        "11.2.0",
        "MIT",
        "/HfHI/7N84e6GrWBJ3J280z3mLaRJiDcSvj/A+y/4AbLnND/1UlGHe1sR6oYuTGwId0nP7dqDU9OnLxMPZ7xBg==",
        {"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "hooks.js"},
    ),
    Library(
        "htm",
        "3.1.1",
        "Apache-2.0",
        "983Vyg8NwUE7JkZ6NmOqpCZ+sh1bKv2iYTlUkzlWmA5JD2acKoxd4KVxbMmxX/85mtfdnDmTFoNKcg5DGAvxNQ==",
        {"dist/htm.module.js": "htm.js"},
    ),
)
#: What a library imports by a bare name, which a browser cannot find -> where it is.
BARE_IMPORTS = {"preact": "./preact.js", "preact/hooks": "./hooks.js"}


class VendorError(Exception):
    """A fetched or existing file differs from its pinned checksum."""


def rewritten(source: str) -> str:
    """A module as a browser accepts it: imports by path, no pointer to a map that does not exist."""
    source = re.sub(r"^//# sourceMappingURL=.*\n?", "", source, flags=re.M).rstrip() + "\n"
    return re.sub(r'(\bfrom\s*)"([^"./][^"]*)"', lambda match: f'{match[1]}"{BARE_IMPORTS[match[2]]}"', source)


def fetch(library: Library, folder: Path) -> tuple[dict[str, str], str]:
    """The files of a library by their names here, and the text of its licence.

    Raises:
        VendorError: the package is another one than was pinned.
    """
    command = ["npm", "pack", "--silent", "--pack-destination", str(folder), f"{library.name}@{library.version}"]
    subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL)
    package = folder / f"{library.name}-{library.version}.tgz"
    found = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
    if found != library.sha512:
        raise VendorError(f"{library.name} {library.version} has sha512 {found}, not {library.sha512}")
    with tarfile.open(package) as tar:

        def text(path: str) -> str:
            member = tar.extractfile(f"package/{path}")
            if member is None:
                raise VendorError(f"{library.name} {library.version} has no {path}")
            return member.read().decode()

        return {name: rewritten(text(path)) for path, name in library.files.items()}, text("LICENSE")


def sha256(path: Path) -> str:
    """The hash of a file, as it is in vendored.json."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def vendor() -> None:
    """Fetches everything, and writes the files, the record and NOTICE."""
    record, notice = [], PREFACE
    VENDOR.mkdir(parents=True, exist_ok=True)
    for library in LIBRARIES:
        with tempfile.TemporaryDirectory() as folder:
            files, licence = fetch(library, Path(folder))
        for name, source in files.items():
            (VENDOR / name).write_text(source)
        record.append(
            {
                "name": library.name,
                "version": library.version,
                "licence": library.licence,
                "sha512": library.sha512,
                "files": {name: sha256(VENDOR / name) for name in sorted(files)},
            }
        )
        notice += f"\n{'-' * 80}\n{library.name} {library.version} ({library.licence})\n\n{licence.strip()}\n"
    RECORD.write_text(json.dumps(record, indent=2) + "\n")
    NOTICE.write_text(notice)


def check() -> None:
    """Compares the files with the record, and the record with what is pinned.

    Raises:
        VendorError: something differs.
    """
    record = {each["name"]: each for each in json.loads(RECORD.read_text())}
    pinned = {each.name: (each.version, each.licence, each.sha512) for each in LIBRARIES}
    if {name: (its["version"], its["licence"], its["sha512"]) for name, its in record.items()} != pinned:
        raise VendorError("vendored.json is not of what is pinned: run python tools/vendor.py")
    hashes = {name: its for each in record.values() for name, its in each["files"].items()}
    there = {path.name: sha256(path) for path in VENDOR.glob("*.js")}
    if there != hashes:
        wrong = sorted(name for name in there.keys() | hashes.keys() if there.get(name) != hashes.get(name))
        raise VendorError(f"not as in vendored.json: {', '.join(wrong)}")
    notice = NOTICE.read_text()
    missing = [each.name for each in LIBRARIES if f"{each.name} {each.version} ({each.licence})" not in notice]
    if missing:
        raise VendorError(f"NOTICE lacks {', '.join(missing)}")


def main() -> int:
    """Fetches or checks; 0 when all is as pinned."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    try:
        if not parser.parse_args().check:
            vendor()
        check()
    except VendorError as error:
        print(f"vendor: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
