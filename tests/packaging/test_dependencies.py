"""The versions of dependencies that pyproject.toml allows."""

from __future__ import annotations

import re
import tomllib

from packaging.requirements import Requirement
from packaging.version import Version

from tests.support.readme_tour import ROOT

GENERATED = ROOT / "proto" / "quorumlog" / "v1"
MADE_FOR_PROTOBUF = re.compile(r"Domain\.PUBLIC,\s*(\d+),\s*(\d+),\s*(\d+),")
MADE_FOR_GRPC = re.compile(r"GRPC_GENERATED_VERSION = '([\d.]+)'")


def lowest_allowed() -> dict[str, Version]:
    """Returns the lower bound of every dependency that has one, by name."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    bounds = {
        each.name: [part.version for part in each.specifier if part.operator == ">="]
        for each in map(Requirement, listed)
    }
    return {name: Version(versions[0]) for name, versions in bounds.items() if versions}


def test_generated_code_accepts_its_runtimes() -> None:
    """Code from protoc and grpcio-tools raises at import under an older runtime than the one it was made for."""
    lowest = lowest_allowed()
    for module in GENERATED.glob("*_pb2.py"):
        numbers = MADE_FOR_PROTOBUF.search(module.read_text())
        assert numbers, module
        assert lowest["protobuf"] >= Version(".".join(numbers.groups())), module
    for module in GENERATED.glob("*_pb2_grpc.py"):
        number = MADE_FOR_GRPC.search(module.read_text())
        assert number, module
        for name in ("grpcio", "grpcio-health-checking", "grpcio-reflection", "grpcio-status"):
            assert lowest[name] >= Version(number[1]), (name, module)
