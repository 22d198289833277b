"""Frameworks and tools that are tested on quorumlog, and their versions. docs/use/frameworks.md lists them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from bench.peers.artifacts import JarSet

CONNECT_JARS = JarSet("kafka-connect", "org.apache.kafka", "connect-runtime", "4.3.1")
CONNECT_FILE_JARS = JarSet("kafka-connect-file", "org.apache.kafka", "connect-file", "4.3.1")
DEBEZIUM_JARS = JarSet("debezium-postgres", "io.debezium", "debezium-connector-postgres", "3.6.1.Final")
FLINK_JARS = JarSet("flink-kafka", "org.apache.flink", "flink-connector-kafka", "5.0.0-2.2")
MIRROR_JARS = JarSet("kafka-mirror", "org.apache.kafka", "connect-mirror", "4.3.1")
STREAMS_JARS = JarSet("kafka-streams", "org.apache.kafka", "kafka-streams", "4.3.1")

FAUST = ("faust-streaming==0.15.3", "aiokafka==0.14.0")
#: The serializers of examples/avro_with_karapace.py.
AVRO = ("confluent-kafka[avro,schemaregistry]==2.16.1",)
#: What the machine has to provide: the version that was tried last.
PROGRAMS = {"rsyslog": "8.2302", "kafka_exporter": "1.9", "kaf": "0.2.14", "Karapace": "6.2.0"}
_GO = (Path(__file__).resolve().parent / "programs" / "go" / "go.mod").read_text()


def go_version(module: str) -> str:
    """The version of a Go module that the programs are built with."""
    [version] = re.findall(rf"^\t{module} v(\S+)$", _GO, re.M)
    return str(version)


@dataclass(frozen=True)
class Framework:
    """A framework, and the program in ``programs/python`` that uses it.

    Arguments:
        row: its name in docs/use/frameworks.md.
        program: is called with the addresses of the nodes, a folder, which is new for each process, and the guarantee.
        requirements: for pip, or modules of Go. The first one is the framework.
        sums: the program sums the numbers of each key and minute; otherwise it passes them on.
        may_repeat: the framework documents that a record may be processed again after a fault.
        keeps_folder: every process gets the same folder, because the framework keeps its positions there.
        sends: numbers are sent as tasks by the program, which is called with ``send FIRST END`` in addition.
        changelog: the topic of the framework's state, and its ``cleanup.policy``.
        header: every result has this header.
        jars: what it needs of Maven; their folder is in the environment variable ``JARS``.
        guarantee: what the program is asked to guarantee, if it can be chosen.
    """

    row: str
    program: str
    requirements: tuple[str, ...]
    sums: bool = False
    may_repeat: bool = True
    keeps_folder: bool = False
    sends: bool = False
    changelog: tuple[str, str] | None = None
    header: str = ""
    jars: JarSet | None = None
    guarantee: str = ""

    @property
    def name(self) -> str:
        """The name of its test."""
        return "-".join(filter(None, [self.program.removesuffix("_app"), self.guarantee]))

    @property
    def version(self) -> str:
        return self.requirements[0].partition("==")[2] or go_version(self.requirements[0])


FRAMEWORKS = (
    Framework(
        "Quix Streams",
        "quix_app",
        ("quixstreams==3.28.1", "confluent-kafka==2.12.2"),
        sums=True,
        changelog=("changelog__quix--numbers--tumbling_window_60000_sum", "compact"),
        guarantee="at-least-once",
    ),
    Framework(
        "Quix Streams, exactly once",
        "quix_app",
        ("quixstreams==3.28.1", "confluent-kafka==2.12.2"),
        sums=True,
        may_repeat=False,
        changelog=("changelog__quix--numbers--tumbling_window_60000_sum", "compact"),
        guarantee="exactly-once",
    ),
    Framework(
        "Faust, windowed table",
        "faust_windows_app",
        FAUST,
        sums=True,
        changelog=("summing-sums-changelog", "compact,delete"),
    ),
    Framework(
        "FastStream, confluent",
        "faststream_confluent_app",
        ("faststream[confluent,kafka]==0.7.8", "confluent-kafka==2.16.1", "aiokafka==0.14.0"),
    ),
    Framework(
        "FastStream, aiokafka",
        "faststream_aiokafka_app",
        ("faststream[confluent,kafka]==0.7.8", "confluent-kafka==2.16.1", "aiokafka==0.14.0"),
    ),
    Framework("Celery, kombu", "celery_app", ("celery==5.7.0", "kombu==5.7.0", "confluent-kafka==2.16.1"), sends=True),
    Framework("Arroyo", "arroyo_app", ("sentry-arroyo==2.48.0", "confluent-kafka==2.16.1")),
    Framework("Bytewax", "bytewax_app", ("bytewax[kafka]==0.21.1", "confluent-kafka==2.16.1"), keeps_folder=True),
    Framework("Pathway", "pathway_app", ("pathway==0.33.0",), sums=True, keeps_folder=True),
    Framework(
        "taskiq",
        "taskiq_app",
        ("taskiq-aio-kafka==1.0.0", "taskiq==0.13.0", "aiokafka==0.14.0", "kafka-python==3.0.12"),
        sends=True,
    ),
    Framework(
        "PyFlink",
        "flink_app",
        ("apache-flink==2.2.1",),
        sums=True,
        jars=FLINK_JARS,
        guarantee="at-least-once",
    ),
    Framework(
        "PyFlink, exactly once",
        "flink_app",
        ("apache-flink==2.2.1",),
        sums=True,
        jars=FLINK_JARS,
        guarantee="exactly-once",
    ),
    Framework(
        "OpenTelemetry, confluent-kafka",
        "opentelemetry_app",
        (
            "opentelemetry-instrumentation-confluent-kafka==0.66b1",
            "opentelemetry-sdk==1.45.1",
            "confluent-kafka==2.16.1",
        ),
        header="traceparent",
    ),
)
KAFKA_GO = Framework("kafka-go", "kafkago", ("github.com/segmentio/kafka-go",))

#: Row of docs/use/frameworks.md -> version.
VERSIONS = {
    **{each.row: each.version for each in (*FRAMEWORKS, KAFKA_GO)},
    "Faust, table": FAUST[0].partition("==")[2],
    "sarama": go_version("github.com/IBM/sarama"),
    "Kafka Streams": STREAMS_JARS.version,
    "Kafka Connect": CONNECT_JARS.version,
    "Debezium for PostgreSQL": DEBEZIUM_JARS.version,
    "MirrorMaker 2": MIRROR_JARS.version,
    **PROGRAMS,
}
