"""Karapace, a schema registry that keeps its schemas in a topic: two instances, while nodes and instances stop."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import AGAINST
from connect_worker import until
from frameworks import AVRO
from matrix_clients import BUILD, _python
from test_frameworks import kill_leader, running

from quorumlog.local import LocalCluster
from quorumlog.local.ports import ReservedPorts

KARAPACE = os.environ.get("KARAPACE") or shutil.which("karapace")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "avro_with_karapace.py"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.timeout(900),
    pytest.mark.skipif(AGAINST == "apache", reason="quorumlog's nodes are killed"),
    pytest.mark.skipif(KARAPACE is None, reason="needs Karapace: name its program in KARAPACE"),
]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, kafka=True) as nodes:
        yield nodes


@contextmanager
def karapace(cluster: LocalCluster, name: str) -> Iterator[str]:
    """An instance of the registry; its address."""
    assert KARAPACE is not None
    with closing(ReservedPorts(1)) as reserved:
        [port] = reserved.ports
        address = f"http://127.0.0.1:{port}"
        settings = {
            "KARAPACE_BOOTSTRAP_URI": cluster.kafka_bootstrap_servers,
            "KARAPACE_HOST": "127.0.0.1",
            "KARAPACE_ADVERTISED_HOSTNAME": "127.0.0.1",
            "KARAPACE_PORT": str(port),
            "KARAPACE_KARAPACE_REGISTRY": "true",
            "KARAPACE_REPLICATION_FACTOR": "3",
            "KARAPACE_PRODUCER_ACKS": "all",
            "KARAPACE_LOG_LEVEL": "INFO",
        }
        with running(f"karapace-{name}", [KARAPACE], env={**os.environ, **settings}):
            ready = (200, {"master_available": True})
            until(lambda: request(address, "GET", "/master_available") == ready, f"{name} serves")
            yield address


def request(address: str, method: str, path: str, content: dict[str, Any] | None = None) -> tuple[int, Any]:
    """Returns the status and the response of the registry; 0 if it does not answer."""
    data = None if content is None else json.dumps(content).encode()
    kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(address + path, data, kind, method=method), timeout=30
        ) as got:
            return got.status, json.load(got)
    except urllib.error.HTTPError as error:
        return error.code, None
    except OSError:
        return 0, None


def schema(*fields: str, default: int | None = 0) -> dict[str, Any]:
    """An Avro schema of a record with these fields of integers, as the registry accepts it."""
    shape: dict[str, Any] = {"type": "int"} if default is None else {"type": "int", "default": default}
    record = {"type": "record", "name": "Order", "fields": [{"name": each, **shape} for each in fields]}
    return {"schema": json.dumps(record)}


def register(address: str, subject: str, content: dict[str, Any]) -> int:
    """Registers a schema, and repeats while the registry has no master; returns the schema's number."""
    answers: list[tuple[int, Any]] = []

    def is_registered() -> bool:
        answers.append(request(address, "POST", f"/subjects/{subject}/versions", content))
        return answers[-1][0] == 200

    until(is_registered, f"a schema of {subject} is registered")
    return int(answers[-1][1]["id"])


def schemas(address: str, numbers: list[int]) -> list[Any]:
    return [request(address, "GET", f"/schemas/ids/{number}")[1] for number in numbers]


def test_registry_survives_kills(cluster: LocalCluster) -> None:
    """No registered schema is lost when the leader of its topic and the first instance are killed."""
    versions = [schema("count"), schema("count", "price"), schema("count", "price", "tax")]
    with ExitStack() as second, ExitStack() as first:
        one, two = first.enter_context(karapace(cluster, "one")), second.enter_context(karapace(cluster, "two"))
        numbers = [register(one, "orders", versions[0])]
        assert request(two, "POST", "/subjects/orders/versions", schema("weight", default=None))[0] == 409
        killed = kill_leader(cluster, "_schemas")
        numbers.append(register(two, "orders", versions[1]))
        cluster.start(killed)
        first.close()
        numbers.append(register(two, "orders", versions[2]))
        with karapace(cluster, "three") as three:
            wanted = [json.loads(each["schema"]) for each in versions]
            for address in (two, three):
                found = [json.loads(each["schema"]) for each in schemas(address, numbers)]
                assert found == wanted
            assert request(three, "GET", "/subjects/orders/versions") == (200, [1, 2, 3])
    print(f"Karapace: schemas {numbers}, read from two instances, one of them new")


def test_example_runs_on_the_registry(cluster: LocalCluster) -> None:
    """Avro serializers of confluent-kafka, given to quorumlog's own clients."""
    python = Path(_python("avro", *AVRO)[0])
    [packages] = python.parent.parent.glob("lib/python*/site-packages")
    with karapace(cluster, "example") as address:
        ended = subprocess.run(
            [sys.executable, str(EXAMPLE), "--bootstrap-servers", cluster.bootstrap_servers],
            env={**os.environ, "PYTHONPATH": str(packages), "SCHEMA_REGISTRY_URL": address},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    (BUILD / "avro_with_karapace.log").write_text(ended.stdout + ended.stderr)
    assert (ended.returncode, ended.stdout.splitlines()) == (
        0,
        [
            "offset 0: {'item': 'apples', 'count': 3, 'gift': False}",
            "offset 1: {'item': 'pears', 'count': 2, 'gift': True}",
            "versions of avro-orders-value: [1, 2]",
            "a field without a default is refused: 409",
        ],
    ), ended.stderr
