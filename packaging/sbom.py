"""Writes a software bill of materials (CycloneDX, JSON): the packages of an environment with the wheel, and the
libraries that the web console contains. Needs the environment that ``make package`` makes.

python packaging/sbom.py --environment build/sbom/environment/bin/python --to dist/quorumlog.cdx.json
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
VENDORED = ROOT / "console/static/vendor/vendored.json"


def packages_of(environment: Path) -> dict[str, Any]:
    """Returns the bill of an environment, the same for the same packages.

    Arguments:
        environment: its interpreter.
    """
    command = [str(Path(sys.executable).with_name("cyclonedx-py")), "environment", "--output-reproducible"]
    options = ["--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "library", "--spec-version", "1.6"]
    done = subprocess.run([*command, *options, str(environment)], check=True, capture_output=True, text=True)
    bill: dict[str, Any] = json.loads(done.stdout)
    return bill


def console_libraries() -> list[dict[str, Any]]:
    """Returns the components that are in the wheel as files of the web console."""
    return [
        {
            "type": "library",
            "bom-ref": (reference := f"pkg:npm/{library['name']}@{library['version']}"),
            "name": library["name"],
            "version": library["version"],
            "purl": reference,
            "licenses": [{"license": {"id": library["licence"]}}],
            "hashes": [{"alg": "SHA-512", "content": base64.b64decode(library["sha512"]).hex()}],
        }
        for library in json.loads(VENDORED.read_text())
    ]


def bill_of_materials(environment: Path) -> dict[str, Any]:
    """Returns the whole bill."""
    bill, libraries = packages_of(environment), console_libraries()
    bill["components"] += libraries
    bill["dependencies"] += [{"ref": library["bom-ref"]} for library in libraries]
    root = bill["metadata"]["component"]
    root["purl"] = f"pkg:pypi/{root['name']}@{root['version']}"
    (needs,) = (each for each in bill["dependencies"] if each["ref"] == root["bom-ref"])
    needs["dependsOn"] = sorted([*needs.get("dependsOn", ()), *(library["bom-ref"] for library in libraries)])
    return bill


def main() -> None:
    """Writes the bill, once it is known to be valid."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, required=True)
    parser.add_argument("--to", type=Path, required=True)
    arguments = parser.parse_args()
    bill = bill_of_materials(arguments.environment)
    text = json.dumps(bill, indent=2) + "\n"
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"sbom: the bill is not valid CycloneDX: {error}")
    arguments.to.write_text(text)
    print(f"{arguments.to}: {len(bill['components'])} components")


if __name__ == "__main__":
    main()
