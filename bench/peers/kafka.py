"""Apache Kafka: three combined brokers and controllers (KRaft), from the jars that Maven has."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.peers.artifacts import JarSet
from bench.peers.client_process import missing_clients
from bench.peers.peer import Kind, Peer, RunningServers, Side
from bench.peers.server_processes import ServerProcesses
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk.spark.errors import JavaError
from quorumlog.sdk.spark.java import find_java_home

JARS = JarSet("kafka", "org.apache.kafka", "kafka_2.13", "4.3.1")
NODES = (1, 2, 3)
HEAP = "1g"
#: As Kafka's own start script sets them, with its default heap.
_JVM = (
    f"-Xms{HEAP} -Xmx{HEAP} -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35"
    " -XX:+ExplicitGCInvokesConcurrent -XX:MaxInlineLevel=15 -Djava.awt.headless=true"
).split()
_PROPERTIES = """\
process.roles=broker,controller
node.id={node}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
controller.quorum.voters={voters}
log.dirs={directory}
default.replication.factor=3
min.insync.replicas=2
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
auto.create.topics.enable=false
"""
#: Detection of a dead broker within 2 s instead of 9.
QUICK_SESSIONS = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}

FLUSHED = {"flush.messages": "1"}
LARGE_BATCHES: Mapping[str, object] = {
    "linger.ms": 20,
    "batch.size": 1 << 20,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1 << 20,
}
LARGE_FETCHES: Mapping[str, object] = {
    "records_per_poll": 10_000,
    "fetch.message.max.bytes": 8 << 20,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 1 << 20,
}
#: kafka-python's own, in its own names.
LARGE_PYTHON_BATCHES: Mapping[str, object] = {"linger_ms": 20, "batch_size": 1 << 20}

_C, _PYTHON = "confluent", "kafka_python"
SIDES = (
    Side("Kafka, confluent-kafka", Kind.PRODUCE, _C),
    Side("Kafka, confluent-kafka, batches of 1 MiB", Kind.PRODUCE, _C, LARGE_BATCHES),
    Side("Kafka, confluent-kafka, flush.messages=1", Kind.PRODUCE, _C, {}, FLUSHED),
    Side("Kafka, confluent-kafka, batches of 1 MiB, flush.messages=1", Kind.PRODUCE, _C, LARGE_BATCHES, FLUSHED),
    Side("Kafka, kafka-python", Kind.PRODUCE, _PYTHON, share=0.1),
    Side("Kafka, kafka-python, batches of 1 MiB", Kind.PRODUCE, _PYTHON, LARGE_PYTHON_BATCHES, share=0.1),
    Side("Kafka, confluent-kafka", Kind.CONSUME, _C),
    Side("Kafka, confluent-kafka, large fetches", Kind.CONSUME, _C, LARGE_FETCHES),
    Side("Kafka, kafka-python", Kind.CONSUME, _PYTHON, share=0.04),
    Side("Kafka, confluent-kafka, linger 0", Kind.SINGLY, _C, {"linger.ms": 0}),
    Side("Kafka, confluent-kafka, linger 0, flush.messages=1", Kind.SINGLY, _C, {"linger.ms": 0}, FLUSHED),
    Side("Kafka, confluent-kafka, defaults", Kind.SINGLY, _C),
    Side("Kafka, confluent-kafka, defaults, flush.messages=1", Kind.SINGLY, _C, {}, FLUSHED),
    Side("Kafka, kafka-python, linger 0", Kind.SINGLY, _PYTHON, {"linger_ms": 0}),
    Side("Kafka", Kind.STEADY, _C, {"linger.ms": 0}),
)
QUICK_SIDES = (Side("Kafka, broker sessions of 2 s", Kind.STEADY, _C, {"linger.ms": 0}),)


class _Brokers:
    """Kafka's processes."""

    def __init__(self, processes: ServerProcesses, ports: list[int]) -> None:
        self._processes = processes
        self.addresses = ",".join(f"127.0.0.1:{port}" for port in ports)

    @property
    def pids(self) -> Mapping[str, int]:
        return {str(node): self._processes.pid(_name(node)) for node in NODES}

    def kill(self, name: str) -> None:
        self._processes.kill(_name(int(name)))


def _name(node: int) -> str:
    return f"broker-{node}"


def missing() -> str:
    """Returns what to install, as a line; empty if nothing is missing."""
    wanted = [JARS.missing(), missing_clients("confluent-kafka", "kafka-python")]
    try:
        find_java_home()
    except JavaError:
        wanted.append("Java 17 or newer")
    return "; ".join(want for want in wanted if want)


def starter(extra: Mapping[str, str]) -> Callable[[Path], AbstractContextManager[RunningServers]]:
    """Starts brokers with some settings beside those that three on one machine need."""

    @contextmanager
    def started(work_dir: Path) -> Iterator[RunningServers]:
        java = find_java_home() / "bin" / "java"
        reserved = ReservedPorts(2 * len(NODES))
        try:
            with ServerProcesses(work_dir, "Kafka") as processes:
                ports = reserved.ports
                files = write_properties(processes.directory, ports, extra)
                command = [java, *_JVM, "-cp", f"{JARS.folder}/*"]
                cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
                for node, file in files.items():
                    processes.start(
                        f"format-{node}",
                        [
                            java,
                            "-cp",
                            f"{JARS.folder}/*",
                            "kafka.tools.StorageTool",
                            "format",
                            f"--cluster-id={cluster}",  # It may start with a dash.
                            "-c",
                            file,
                        ],
                    )
                for node in files:
                    processes.finish(f"format-{node}")
                for node, file in files.items():
                    processes.start(_name(node), [*command, "kafka.Kafka", file])
                processes.wait_for_ports(ports[: len(NODES)])
                yield _Brokers(processes, ports[: len(NODES)])
        finally:
            reserved.close()

    return started


def write_properties(directory: Path, ports: list[int], extra: Mapping[str, str]) -> dict[int, Path]:
    """A file of settings for each node.

    Arguments:
        ports: of the brokers, then of the controllers.
        extra: further settings.
    """
    brokers, controllers = ports[: len(NODES)], ports[len(NODES) :]
    voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in zip(NODES, controllers, strict=True))
    files = {}
    for node, broker, controller in zip(NODES, brokers, controllers, strict=True):
        text = _PROPERTIES.format(
            node=node, broker=broker, controller=controller, voters=voters, directory=directory / f"data-{node}"
        )
        files[node] = directory / f"server-{node}.properties"
        files[node].write_text(text + "".join(f"{name}={value}\n" for name, value in extra.items()))
    return files


def _described(extra: Mapping[str, str]) -> str:
    beside = "".join(f", {name}={value}" for name, value in extra.items())
    return (
        f"KRaft, three combined nodes, heaps of {HEAP}, min.insync.replicas=2, no fsync unless flush.messages=1{beside}"
    )


def _peer(name: str, extra: Mapping[str, str], sides: tuple[Side, ...]) -> Peer:
    return Peer("kafka", name, _described(extra), missing, lambda: JARS.version, starter(extra), sides)


PEERS = (
    _peer("Kafka", {}, SIDES),
    _peer("Kafka, broker sessions of 2 s", QUICK_SESSIONS, QUICK_SIDES),
)
