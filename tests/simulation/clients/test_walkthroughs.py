"""The files that docs/internals/architecture.md follows a call through are the files that such a call opens."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from quiet_cluster import TOPIC, Quiet

from quorumlog.sdk import TopicPartition
from quorumlog.sdk.aio import AsyncConsumer, AsyncProducer
from quorumlog.simulator.clients.client_network import SimClientNetwork

ROOT = Path(__file__).resolve().parents[3]
#: The simulator has its own network, disk and event loop in the place of these, and its clients are asynchronous.
REPLACED = re.compile(
    r"storage/(?!batch_row)|server/process/driver\.py|server/transport/peers/|sdk/(producer|consumer)/(producer|consumer)\.py"
)
PARTITION = TopicPartition(TOPIC, 0)


class Traced(Quiet):
    """A quiet cluster with clients, and the files whose functions were called."""

    def __init__(self) -> None:
        super().__init__(1)
        self.network = SimClientNetwork(self.cluster, self.scheduler)
        for process in self.cluster.processes.values():
            assert process.make_door is not None
            process.door = process.make_door()
        self.run(2)
        self.host = self.network.host("app", 0)
        self.options: dict[str, Any] = {
            "runtime": self.host.runtime,
            "bootstrap_servers": self.network.bootstrap_servers,
        }
        self._code_files: set[str] = set()
        self._done = False

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._code_files.add(frame.f_code.co_filename)

    def opened_by(self, call: Coroutine[Any, Any, None]) -> set[str]:
        """The files that a call opens, on its client and on the nodes, relative to the checkout."""

        async def run() -> None:
            await call
            self._done = True

        self.host.run(run())
        sys.setprofile(self._profile)
        try:
            self.until(lambda: self._done, 30)
        finally:
            sys.setprofile(None)
        return {os.path.relpath(os.path.realpath(each), ROOT) for each in self._code_files}

    async def send(self, *values: bytes) -> None:
        producer = AsyncProducer(**self.options)
        for value in values:
            await (await producer.send(TOPIC, value, key=b"k"))
        await producer.close()

    async def fetch(self) -> None:
        await self.send(b"first")
        consumer = AsyncConsumer(**self.options)
        await consumer.assign([PARTITION])
        await consumer.seek_to_beginning()
        for value in (b"second", b"third"):
            while not await consumer.poll(timeout_ms=100):
                pass
            await self.send(value)
        await consumer.close()

    async def join(self) -> None:
        await self.send(b"first")
        consumer = AsyncConsumer(group_id="billing", auto_offset_reset="earliest", **self.options)
        await consumer.subscribe([TOPIC])
        while not await consumer.poll(timeout_ms=100):
            pass
        await consumer.commit()
        await consumer.close()


@pytest.fixture
def traced() -> Iterator[Traced]:
    made = Traced()
    yield made
    made.network.dispose()


def listed(section: str) -> list[str]:
    """The files of a walk, in its order."""
    page = (ROOT / "docs" / "internals" / "architecture.md").read_text()
    (text,) = re.findall(rf"^## {section}.*?\n(.*?)^## ", page, re.M | re.S)
    return re.findall(r"^\d+\. `([\w/]+\.py)`: ", text, re.M)


@pytest.mark.parametrize(
    ("section", "call"),
    [
        ("A produce call", lambda traced: traced.send(b"first", b"second")),
        ("A fetch", Traced.fetch),
        ("A consumer group's heartbeat", Traced.join),
    ],
    ids=["produce", "fetch", "heartbeat"],
)
def test_a_call_opens_the_files_of_its_walk(
    traced: Traced, section: str, call: Callable[[Traced], Coroutine[Any, Any, None]]
) -> None:
    opened = traced.opened_by(call(traced))
    walk = [file for file in listed(section) if not REPLACED.match(file)]
    assert len(walk) > 25
    assert [file for file in walk if file not in opened] == []
