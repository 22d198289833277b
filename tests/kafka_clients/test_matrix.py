"""Every client writes, every client reads the same: keys, nulls, headers, all codecs, large and many records."""

from __future__ import annotations

import random
import uuid
from collections.abc import Collection, Iterable, Sequence

import own_clients
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from conftest import Servers
from exchange import Line
from matrix_clients import CLIENTS, NOTHING, NULL_HEADER, MatrixClient

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(1_800)]

PARTITIONS = 2
BEGAN_MS = 1_700_000_000_000
LARGE_BYTES = 700_000
MANY = 2_000


def records_to_write(left_out: Collection[str] = ()) -> list[Line]:
    """Returns one record of each permitted kind, and many that are alike. The first partition has the odd ones."""
    random_bytes = random.Random(1).randbytes
    headers: list[list[tuple[str, bytes | None]]] = [
        [("trace", b"42")],
        [("twice", b"1"), ("twice", b"2")],
        [("empty", b""), ("bytes", b"\x00\xff"), ("naïve", "é".encode())],
    ]
    if NULL_HEADER not in left_out:
        headers.append([("null", None)])
    odd: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
        (b"key", b"value", []),
        (None, b"no key", []),
        (b"no value", None, []),
        *([] if NOTHING in left_out else [(None, None, [])]),
        (b"", b"", []),
        (b"\x00\xff\xfe", bytes(range(256)), []),
        *((b"with headers", b"value", each) for each in headers),
        (b"large and random", random_bytes(LARGE_BYTES), []),
        (b"large and alike", b"x" * LARGE_BYTES, []),
    ]
    strange = [Line(0, -1, BEGAN_MS + number, *each) for number, each in enumerate(odd)]
    many = [Line(1, -1, BEGAN_MS + number, b"%d" % (number % 7), b"value of %d" % number, []) for number in range(MANY)]
    return strange + many


def told(records: Iterable[Line]) -> list[Line]:
    """As records are compared: by partition, in the order of their offsets, which are those of a new topic."""
    by_place = sorted(records, key=lambda line: (line.partition, line.offset))
    return [line._replace(headers=[tuple(each) for each in line.headers]) for line in by_place]  # type: ignore[misc]


def as_written(records: Sequence[Line]) -> list[Line]:
    """The same, each with the offset that it gets."""
    ends = dict.fromkeys(range(PARTITIONS), 0)
    placed = []
    for line in records:
        placed.append(line._replace(offset=ends[line.partition]))
        ends[line.partition] += 1
    return placed


def shown(records: Iterable[Line]) -> list[Line]:
    """Without bytes that no one wants to read in a message."""

    def short(data: bytes | None) -> bytes | None:
        return data if data is None or len(data) < 1_000 else data[:8] + b"... %d" % hash(data)

    return [line._replace(key=short(line.key), value=short(line.value)) for line in records]


def new_topic(servers: str) -> str:
    name = f"matrix-{uuid.uuid4().hex[:8]}"
    configs = {"max.message.bytes": str(2 << 20), "retention.ms": "-1"}  # The records' times are long ago.
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, PARTITIONS, 3, config=configs)])[name].result(30)
    return name


def differences(found: Sequence[Line], written: Sequence[Line]) -> str:
    """Returns what a reader got that is not what was written; empty if all is right."""
    got, expected = shown(told(found)), shown(told(as_written(written)))
    if got == expected:
        return ""
    first = next((pair for pair in zip(got, expected, strict=False) if pair[0] != pair[1]), None)
    return f"{len(got)} of {len(expected)} records; the first that differs: {first}"


def read_by_everybody(servers: Servers, topic: str, codec: str, written: Sequence[Line]) -> dict[str, str]:
    """Returns what readers got wrong, by name."""
    found = {
        client.name: client.read(servers.kafka, topic, f"{topic}-{client.name}".replace(" ", "-"), len(written))
        for client in CLIENTS
        if codec in client.codecs
    }
    if servers.own:
        found |= {name: read(servers.own, topic, len(written)) for name, read in own_clients.READERS.items()}
    return {name: wrong for name, records in found.items() if (wrong := differences(records, written))}


@pytest.mark.parametrize(
    ("writer", "codec"),
    [
        pytest.param(client, codec, id=f"{client.name}-{codec}".replace(" ", "-"))
        for client in CLIENTS
        for codec in client.codecs
    ],
)
def test_what_a_client_writes_every_client_reads(servers: Servers, writer: MatrixClient, codec: str) -> None:
    records = records_to_write(writer.cannot_write)
    topic = new_topic(servers.kafka)
    writer.write(servers.kafka, topic, codec, records)
    assert read_by_everybody(servers, topic, codec, records) == {}


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_what_the_sdk_writes_every_client_reads(servers: Servers, codec: str) -> None:
    if not servers.own:
        pytest.skip("the SDK writes to quorumlog only")
    records = records_to_write()
    topic = new_topic(servers.kafka)
    own_clients.write(servers.own, topic, codec, records)
    assert read_by_everybody(servers, topic, codec, records) == {}
