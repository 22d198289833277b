"""Java's client copies in transactions of version 2 (KIP-890), and its last epoch comes in the middle of them."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from collections.abc import Awaitable, Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from conftest import Servers
from matrix_clients import SERVER_JARS, _java

from bench.kafka_port.raw_client import PortConnection, find_transaction_coordinator
from quorumlog.server.kafka.codec.produce_requests import InitProducerIdRequest
from quorumlog.server.kafka.codec.produce_responses import InitProducerIdResponse

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(1_200)]

#: After it, a transactional id gets another producer id.
LAST_EPOCH = 32_766
#: Epochs that are left when the program starts; it has more transactions than that.
EPOCHS_LEFT = 6
RECORDS, PER_TRANSACTION, PARTITIONS = 400, 25, 3
_VERSION = 5
_RETRIABLE = {14, 15, 16, 51}
_DONE_WITHIN_S = 300.0

Initialize = Callable[[], Awaitable[tuple[int, int]]]


async def with_producer_id(
    servers: str, name: str, work: Callable[[Initialize], Awaitable[tuple[int, int]]]
) -> tuple[int, int]:
    """Runs work that starts new instances of a transactional producer. Each of them fences the one before."""
    _, address = await find_transaction_coordinator(servers.split(",", maxsplit=1)[0], name)
    connection = await PortConnection.to(address)

    async def initialize() -> tuple[int, int]:
        while True:
            request = InitProducerIdRequest(name, 60_000)
            answer = await connection.ask(request, _VERSION, InitProducerIdResponse)
            if answer.error_code not in _RETRIABLE:
                assert answer.error_code == 0
                return answer.producer_id, answer.producer_epoch
            await asyncio.sleep(0.02)

    try:
        return await work(initialize)
    finally:
        connection.close()


async def use_up(initialize: Initialize) -> tuple[int, int]:
    """Starts instances until few epochs are left."""
    first, epoch = await initialize()
    while epoch < LAST_EPOCH - EPOCHS_LEFT:
        producer_id, epoch = await initialize()
        assert producer_id == first
    return first, epoch


def create_topics(servers: Servers, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers.kafka})
    for created in admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in names]).values():
        created.result()


def fill(servers: Servers, topic: str) -> list[str]:
    """Writes the records that are copied, and returns their values in order."""
    values = [f"{number:04}" for number in range(RECORDS)]
    producer = Producer({"bootstrap.servers": servers.kafka, "enable.idempotence": True})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(60) == 0
    return values


@pytest.mark.parametrize("overflows", [False, True], ids=["first epochs", "last epochs"])
def test_java_copies_exactly_once(servers: Servers, overflows: bool) -> None:
    """A transaction of version 2 takes an epoch. With six epochs left, the producer id changes in one of them."""
    name = uuid.uuid4().hex
    source, target = f"source-{name}", f"target-{name}"
    create_topics(servers, source, target)
    values = fill(servers, source)
    before = asyncio.run(with_producer_id(servers.kafka, name, use_up)) if overflows else None
    command = [*map(str, _java(SERVER_JARS, "Transactions")), servers.kafka, source, target, name, name]
    ended = subprocess.run(
        [*command, str(RECORDS), str(PER_TRANSACTION)],
        capture_output=True,
        text=True,
        timeout=_DONE_WITHIN_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4_000:]
    *copied, refusal = ended.stdout.splitlines()
    assert sorted(copied) == values
    print(f"the former producer: {refusal}")
    assert refusal in {"ProducerFencedException", "InvalidProducerEpochException", "InvalidPidMappingException"}
    after = asyncio.run(with_producer_id(servers.kafka, name, lambda initialize: initialize()))
    print(f"producer id and epoch: {before} before, {after} after")
    # The former and the present producer took two epochs, and each transaction one.
    assert after[1] > RECORDS // PER_TRANSACTION - EPOCHS_LEFT
    if before is not None:
        assert (before[1], after[0] != before[0]) == (LAST_EPOCH - EPOCHS_LEFT, True)
