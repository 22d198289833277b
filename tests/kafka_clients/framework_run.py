"""A run of a framework's program: numbers in, results out, while a node is killed and the program is replaced."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from command_line import leader_of
from connect_worker import until
from frameworks import Framework
from test_frameworks import kill_leader, records_in, running

from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, Producer, TopicPartition

KEYS, RECORDS = 7, 1_050
#: The numbers of a minute. A node is killed, and the program is replaced, within a minute.
PER_MINUTE = 210
MINUTE_MS = 60_000


class Run:
    """One framework on one cluster: topic ``numbers`` in, topic ``results`` out."""

    def __init__(
        self, cluster: LocalCluster, framework: Framework, program: Sequence[str | Path], folder: Path
    ) -> None:
        self.cluster, self.framework, self._folder = cluster, framework, folder
        self._command = [*map(str, program), cluster.kafka_bootstrap_servers]
        self._environment = dict(os.environ)
        if framework.jars is not None:
            if framework.jars.missing():
                framework.jars.download()
            self._environment["JARS"] = str(framework.jars.folder)
        self._begins_ms = (time.time_ns() // 1_000_000 // MINUTE_MS - 50) * MINUTE_MS
        self._sent = 0

    def play(self) -> None:
        """Kills the leader of ``numbers`` while the program works; replaces the program, which works while the node
        returns and leads again."""
        with Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("numbers", 3, 3), NewTopic("results", 3, 3)])
        with self.program("first"):
            self.send(RECORDS // 3)
            self.wait()
            self.send(RECORDS // 2)
            killed = kill_leader(self.cluster, "numbers")
            self.send(2 * RECORDS // 3)
            self.wait()
        # Faust sends a request to every listed node when it starts, and ends if one is down. As in Kafka, a node that
        # was killed is listed until its session times out.
        until(lambda: self.is_fenced(killed), "the killed node is no longer listed")
        with self.program("second"):
            self.send(5 * RECORDS // 6)
            self.cluster.start(killed)
            until(lambda: leader_of(self.cluster, "numbers") == killed, "the killed node leads again")
            self.send(RECORDS)
            self.wait()
        self.check()
        print(f"{self.framework.row} {self.framework.version}: {RECORDS} numbers, {self.repeated()} results repeated")

    def is_fenced(self, node: int) -> bool:
        """True once the controller considers a node failed."""
        with Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
            return any(broker.fenced for broker in admin.describe_cluster().brokers if broker.node_id == node)

    def program(self, name: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Starts the program with a new, empty folder."""
        folder = self._folder / ("kept" if self.framework.keeps_folder else name)
        folder.mkdir(exist_ok=True)
        command = [*self._command, folder, *filter(None, [self.framework.guarantee])]
        return running(f"{self.framework.program}-{name}", command, cwd=folder, env=self._environment)

    def send(self, end: int) -> None:
        """Sends numbers up to ``end`` and waits until they are acknowledged."""
        first, self._sent = self._sent, end
        if self.framework.sends:
            command = [*map(str, self._command), str(self._folder), "send", str(first), str(end)]
            subprocess.run(command, check=True, timeout=120, cwd=self._folder)
            return
        with Producer(bootstrap_servers=self.cluster.bootstrap_servers) as producer:
            for number in range(first, end):
                at_ms = self._begins_ms + number // PER_MINUTE * MINUTE_MS
                producer.send("numbers", b"%d" % number, key=b"%d" % (number % KEYS), timestamp_ms=at_ms)

    def wait(self) -> None:
        """Waits until everything that was sent has its result."""
        found = self._sums if self.framework.sums else self._numbers
        wanted = self._expected() if self.framework.sums else set(range(self._sent))
        until(lambda: found() == wanted, f"the results of {self._sent} numbers")

    def repeated(self) -> int:
        """The number of results beyond the first of each key and value."""
        return sum(count - 1 for count in Counter(records_in(self.cluster, "results")).values())

    def check(self) -> None:
        """Checks what the framework leaves beside its results."""
        if self.framework.changelog is not None:
            name, policy = self.framework.changelog
            with Admin(bootstrap_servers=self.cluster.bootstrap_servers) as admin:
                found = admin.describe_configs([name])[name]["cleanup.policy"].value
            assert set(found.split(",")) == set(policy.split(","))
        if self.framework.header:
            assert all(self.framework.header in headers for headers in self._headers())
        assert self.framework.may_repeat or self.repeated() == 0

    def _headers(self) -> list[set[str]]:
        """The names of the headers of each result."""
        found: list[set[str]] = []
        with Consumer(bootstrap_servers=self.cluster.bootstrap_servers) as consumer:
            partitions = [TopicPartition("results", each) for each in consumer.partitions_for_topic("results")]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            while len(found) < RECORDS:
                for records in consumer.poll(timeout_ms=500).values():
                    found += [{name for name, _ in each.headers} for each in records]
        return found

    def _numbers(self) -> set[int]:
        return {int(value or b"") for _, value in records_in(self.cluster, "results")}

    def _sums(self) -> dict[str, int]:
        """The last sum of each key and minute."""
        last = {}
        for key, value in records_in(self.cluster, "results"):
            result = json.loads(value or b"")
            if not isinstance(result, dict):
                result = {"result": result}
            if result.get("diff") != -1:  # Pathway withdraws the former result.
                last[(key or b"").decode()] = result["result"]
        return last

    def _expected(self) -> dict[str, int]:
        sums: dict[str, int] = defaultdict(int)
        for number in range(self._sent):
            sums[f"{number % KEYS}@{self._begins_ms + number // PER_MINUTE * MINUTE_MS}"] += number
        return sums
