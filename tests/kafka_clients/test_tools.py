"""Kafka's own command-line tools against three nodes: they administer a cluster while records are written."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer as KafkaMember
from confluent_kafka import KafkaException, Producer
from conftest import AGAINST

from bench.peers.artifacts import JarSet
from bench.peers.kafka import JARS
from quorumlog.local import LocalCluster
from quorumlog.sdk import Consumer, TopicPartition
from quorumlog.sdk.spark.java import find_java_home

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.timeout(900),
    pytest.mark.skipif(AGAINST == "apache", reason="what is shown is quorumlog's"),
]

TOOLS_JARS = JarSet("kafka-tools", "org.apache.kafka", "kafka-tools", "4.3.1")
_TOOLS = "org.apache.kafka.tools"
TOPICS, ACLS, CONFIGS = f"{_TOOLS}.TopicCommand", f"{_TOOLS}.AclCommand", "kafka.admin.ConfigCommand"
REASSIGN = f"{_TOOLS}.reassign.ReassignPartitionsCommand"
QUORUM = f"{_TOOLS}.MetadataQuorumCommand"
ELECT, LOG_DIRS = f"{_TOOLS}.LeaderElectionCommand", f"{_TOOLS}.LogDirsCommand"
GROUPS, OFFSETS = f"{_TOOLS}.consumer.group.ConsumerGroupCommand", f"{_TOOLS}.GetOffsetShell"
RECORDS = f"{_TOOLS}.DeleteRecordsCommand"
TRANSACTIONS = f"{_TOOLS}.TransactionsCommand"
_PATIENCE_S = 60.0
_COUNTED = 200
#: As ``kafka-reassign-partitions`` takes it.
_MOVE = {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [3, 2, 1]}]}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    for jars in (JARS, TOOLS_JARS):
        if jars.missing():
            jars.download()
    settings = {"auto_leader_rebalance_enable": "false", "kafka_auto_create_topics_enable": "false"}
    with LocalCluster(nodes=3, kafka=True, settings=settings) as nodes:
        yield nodes
        for node in nodes.node_ids:
            assert "fault=" not in nodes.log_path(node).read_text(), "a tool was cut off"


@pytest.fixture(scope="module")
def tool(cluster: LocalCluster) -> Callable[..., str]:
    """Runs a tool, and returns what it printed."""

    def run(kind: str, *arguments: str, fails: bool = False) -> str:
        path = f"{TOOLS_JARS.folder}/*:{JARS.folder}/*"
        java = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", path, kind]
        servers = ["--bootstrap-server", cluster.kafka_bootstrap_servers]
        command = [str(Path(find_java_home()) / "bin" / "java"), *java, *servers, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
        said = ended.stdout + ended.stderr
        assert fails or ended.returncode == 0, said
        return said

    return run


@pytest.fixture(scope="module")
def orders(tool: Callable[..., str]) -> str:
    said = tool(TOPICS, "--create", "--topic", "orders", "--replica-assignment", "1:2:3,2:3:1,3:1:2")
    assert "Created topic orders" in said
    return "orders"


class SteadyWriter:
    """Writes a row of numbers into partition 0 of a topic until it is stopped."""

    def __init__(self, servers: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0})
        self._topic = topic
        self._stopping = threading.Event()
        self.failures: list[object] = []
        self.delivered = 0
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        number = 0
        while not self._stopping.is_set():
            self._producer.produce(self._topic, b"%d" % number, partition=0, on_delivery=self._told)
            number += 1
            self._producer.poll(0.001)
        self._producer.flush(_PATIENCE_S)

    def _told(self, error: object, _message: object) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.failures.append(error)

    def stop(self) -> int:
        """Stops it; returns how many numbers were written."""
        self._stopping.set()
        self._thread.join(_PATIENCE_S)
        assert not self.failures
        return self.delivered


def test_a_partition_moves_under_load_and_its_leadership_follows(
    cluster: LocalCluster, tool: Callable[..., str], orders: str, tmp_path: Path
) -> None:
    wanted, topics = tmp_path / "move.json", tmp_path / "topics.json"
    wanted.write_text(json.dumps(_MOVE))
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": orders}]}))
    load = SteadyWriter(cluster.kafka_bootstrap_servers, orders)
    try:
        plan = tool(REASSIGN, "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1,2,3")
        assert "Proposed partition reassignment configuration" in plan
        begun = tool(REASSIGN, "--reassignment-json-file", str(wanted), "--execute")
        assert "Successfully started partition reassignment for orders-0" in begun
        deadline = time.monotonic() + _PATIENCE_S
        while "is completed" not in (seen := tool(REASSIGN, "--reassignment-json-file", str(wanted), "--verify")):
            assert time.monotonic() < deadline, seen
        assert "No partition reassignments found" in tool(REASSIGN, "--list")
        assert "None of the specified" in tool(REASSIGN, "--reassignment-json-file", str(wanted), "--cancel")
        elected = tool(ELECT, "--election-type", "preferred", "--topic", orders, "--partition", "0")
        assert "Successfully completed leader election (PREFERRED) for partitions orders-0" in elected
        again = tool(ELECT, "--election-type", "preferred", "--topic", orders, "--partition", "0")
        assert "Valid replica already elected for partitions orders-0" in again
        tool(ELECT, "--election-type", "preferred", "--all-topic-partitions")
        unclean = tool(ELECT, "--election-type", "unclean", "--topic", orders, "--partition", "0", fails=True)
        assert "unclean elections are not supported" in unclean
    finally:
        written = load.stop()
    described = tool(TOPICS, "--describe", "--topic", orders)
    assert "Partition: 0\tLeader: 3\tReplicas: 3,2,1" in described
    place = TopicPartition(orders, 0)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        values: list[bytes] = []
        while consumer.position(place) < consumer.end_offsets([place])[place]:
            values += consumer.poll_arrow(timeout_ms=200).column("value").to_pylist()
    assert [int(value) for value in values] == list(range(written))
    assert f"orders:0:{written}" in tool(OFFSETS, "--topic", orders)
    said = tool(LOG_DIRS, "--describe", "--topic-list", orders)
    reported = json.loads(next(line for line in said.splitlines() if line.startswith("{")))
    sizes = {
        (entry["broker"], each["partition"]): each["size"]
        for entry in reported["brokers"]
        for directory in entry["logDirs"]
        for each in directory["partitions"]
    }
    assert len(sizes) == 9
    assert all(sizes[node, "orders-0"] > written for node in (1, 2, 3))


def test_the_metadata_quorum_is_described(tool: Callable[..., str]) -> None:
    status = dict(line.split(":", 1) for line in tool(QUORUM, "describe", "--status").splitlines() if ":" in line)
    assert int(status["LeaderId"]) in (1, 2, 3)
    assert int(status["HighWatermark"]) > 0
    assert int(status["MaxFollowerLag"]) >= 0
    assert sorted(each["id"] for each in json.loads(status["CurrentVoters"])) == [1, 2, 3]
    assert all("KAFKA://127.0.0.1:" in each["endpoints"][0] for each in json.loads(status["CurrentVoters"]))
    # What its libraries have to say is beside the table.
    rows = [line.split() for line in tool(QUORUM, "describe", "--replication").splitlines()]
    assert any(row[:1] == ["NodeId"] for row in rows)
    assert sorted(row[-1] for row in rows if row and row[0] in {"1", "2", "3"}) == ["Follower", "Follower", "Leader"]


def test_a_limited_move_is_refused_and_said_so(tool: Callable[..., str], orders: str, tmp_path: Path) -> None:
    wanted = tmp_path / "move.json"
    wanted.write_text(json.dumps(_MOVE))
    said = tool(REASSIGN, "--reassignment-json-file", str(wanted), "--execute", "--throttle", "1000000", fails=True)
    assert "leader.replication.throttled.rate is not supported: set replica_copy_bytes_per_second" in said or (
        "follower.replication.throttled.rate is not supported: set replica_copy_bytes_per_second" in said
    )


def test_settings_of_a_node_are_read_and_changed(tool: Callable[..., str]) -> None:
    """KIP-226: of one node and of all, each value with its source."""
    place = ("--entity-type", "brokers", "--entity-name", "2")
    every = ("--entity-type", "brokers", "--entity-default")
    reported = tool(CONFIGS, "--describe", "--all", *place)
    assert "node.id=2 " in reported
    assert "auto.create.topics.enable=false " in reported
    assert "default.replication.factor=3 " in reported
    tool(CONFIGS, "--alter", "--add-config", "log.cleaner.io.max.bytes.per.second=5000000", *every)
    tool(CONFIGS, "--alter", "--add-config", "scrub_bytes_per_second=0,max.connections.per.ip=300", *place)
    reported = tool(CONFIGS, "--describe", *place)
    assert "scrub_bytes_per_second=0 " in reported
    assert "DYNAMIC_BROKER_CONFIG:scrub_bytes_per_second=0, DEFAULT_CONFIG:scrub_bytes_per_second=4194304" in reported
    assert "DYNAMIC_BROKER_CONFIG:max.connections.per.ip=300" in reported
    reported = tool(CONFIGS, "--describe", "--all", *place)
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.io.max.bytes.per.second=5000000" in reported
    assert "log.cleaner.io.max.bytes.per.second=5000000 " in tool(CONFIGS, "--describe", *every)
    tool(CONFIGS, "--alter", "--delete-config", "scrub_bytes_per_second,max.connections.per.ip", *place)
    tool(CONFIGS, "--alter", "--delete-config", "log.cleaner.io.max.bytes.per.second", *every)
    reported = tool(CONFIGS, "--describe", *place)
    assert "DYNAMIC" not in reported
    refused = tool(CONFIGS, "--alter", "--add-config", "num.partitions=4", *place, fails=True)
    assert "unknown setting 'num.partitions'" in refused


def test_levels_of_loggers_are_read_and_changed(tool: Callable[..., str], cluster: LocalCluster) -> None:
    """KIP-412."""
    place = ("--entity-type", "broker-loggers", "--entity-name", "2")
    assert "server.groups=INFO " in tool(CONFIGS, "--describe", *place)
    tool(CONFIGS, "--alter", "--add-config", "server.groups=DEBUG,root=WARN", *place)
    reported = tool(CONFIGS, "--describe", *place)
    assert "server.groups=DEBUG " in reported and "root=WARN " in reported and "server.partition=WARN " in reported
    assert "DYNAMIC_BROKER_LOGGER_CONFIG:server.groups=DEBUG" in reported
    tool(CONFIGS, "--alter", "--delete-config", "server.groups,root", *place)
    assert "root=INFO " in tool(CONFIGS, "--describe", *place)
    refused = tool(CONFIGS, "--alter", "--add-config", "kafka.server.KafkaApis=DEBUG", *place, fails=True)
    assert "kafka.server.KafkaApis" in refused


def test_topics_are_grown_configured_emptied_and_deleted(tool: Callable[..., str], tmp_path: Path) -> None:
    tool(TOPICS, "--create", "--topic", "passing", "--partitions", "2", "--replication-factor", "3")
    tool(TOPICS, "--alter", "--topic", "passing", "--partitions", "4")
    place = ("--entity-type", "topics", "--entity-name", "passing")
    tool(CONFIGS, "--alter", "--add-config", "retention.ms=100000", *place)
    assert "retention.ms=100000" in tool(CONFIGS, "--describe", *place)
    assert "PartitionCount: 4" in tool(TOPICS, "--describe", "--topic", "passing")
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({"partitions": [{"topic": "passing", "partition": 0, "offset": -1}], "version": 1}))
    assert "partition: passing-0\tlow_watermark: 0" in tool(RECORDS, "--offset-json-file", str(offsets))
    tool(TOPICS, "--delete", "--topic", "passing")
    assert "passing" not in tool(TOPICS, "--list")


def member_that_has_read(cluster: LocalCluster, topic: str, group: str, kind: str) -> Consumer | KafkaMember:
    """A member of a group that has read all of a topic, and committed that: librdkafka's, or our own client's."""
    member: Consumer | KafkaMember
    if kind == "own":
        member = Consumer(topic, bootstrap_servers=cluster.bootstrap_servers, group_id=group, enable_auto_commit=False)
    else:
        member = KafkaMember(
            {
                "bootstrap.servers": cluster.kafka_bootstrap_servers,
                "group.id": group,
                "group.protocol": kind,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        member.subscribe([topic])
    read, deadline = 0, time.monotonic() + _PATIENCE_S
    while read < _COUNTED:
        assert time.monotonic() < deadline, f"{read} records of {_COUNTED}"
        if isinstance(member, Consumer):
            read += sum(map(len, member.poll(timeout_ms=200).values()))
        else:
            read += len(member.consume(1_000, 0.2))
    if isinstance(member, Consumer):
        member.commit()
    else:
        member.commit(asynchronous=False)
    return member


@pytest.fixture(scope="module")
def counted(cluster: LocalCluster, tool: Callable[..., str]) -> str:
    """A topic of two partitions with as many records in each."""
    tool(TOPICS, "--create", "--topic", "counted", "--partitions", "2", "--replication-factor", "3")
    producer = Producer({"bootstrap.servers": cluster.kafka_bootstrap_servers})
    for number in range(_COUNTED):
        producer.produce("counted", b"%d" % number, partition=number % 2)
    assert producer.flush(_PATIENCE_S) == 0
    return "counted"


def offsets_told(said: str, group: str) -> dict[int, str]:
    """The offset of each partition, from a table of kafka-consumer-groups."""
    rows = [line.split() for line in said.splitlines()]
    return {int(row[2]): row[3] for row in rows if row[:2] == [group, "counted"]}


@pytest.mark.parametrize("kind", ["classic", "consumer", "own"])
def test_a_group_is_listed_described_reset_and_deleted(
    cluster: LocalCluster, tool: Callable[..., str], counted: str, tmp_path: Path, kind: str
) -> None:
    group, half = f"team-{kind}", _COUNTED // 2
    of_group, of_topic = ("--group", group), ("--topic", counted)

    def reset(*how: str, scope: tuple[str, ...] = of_topic) -> dict[int, str]:
        said = tool(GROUPS, "--reset-offsets", *of_group, *scope, *how)
        return offsets_told(said, group)

    def described() -> dict[int, str]:
        return offsets_told(tool(GROUPS, "--describe", *of_group), group)

    member = member_that_has_read(cluster, counted, group, kind)
    try:
        listed = tool(GROUPS, "--list", "--state", "stable", "--type", "classic" if kind == "classic" else "consumer")
        assert group in listed
        assert described() == {0: str(half), 1: str(half)}
        assert "Stable" in tool(GROUPS, "--describe", *of_group, "--state")
        assert "counted" in tool(GROUPS, "--describe", *of_group, "--members", "--verbose")
        refused = tool(GROUPS, "--reset-offsets", *of_group, *of_topic, "--to-earliest", "--execute", fails=True)
        assert "inactive" in refused
        assert "Deletion of some consumer groups failed" in tool(GROUPS, "--delete", *of_group, fails=True)
    finally:
        member.close()
    assert reset("--to-earliest", "--dry-run") == {0: "0", 1: "0"}
    assert described() == {0: str(half), 1: str(half)}, "nothing was changed"
    assert reset("--to-earliest", "--execute") == {0: "0", 1: "0"}
    assert reset("--to-offset", "42", "--execute", scope=("--topic", "counted:1")) == {1: "42"}
    assert reset("--shift-by", "7", "--execute") == {0: "7", 1: "49"}
    assert described() == {0: "7", 1: "49"}
    assert reset("--to-latest", "--execute", scope=("--all-topics",)) == {0: str(half), 1: str(half)}
    assert reset("--to-datetime", "2020-01-01T00:00:00.000", "--execute") == {0: "0", 1: "0"}
    assert reset("--by-duration", "PT0S", "--execute") == {0: str(half), 1: str(half)}
    assert reset("--to-current", "--execute") == {0: str(half), 1: str(half)}
    plan = tmp_path / "plan.csv"
    plan.write_text("counted,0,3\ncounted,1,4\n")
    assert reset("--from-file", str(plan), "--execute", scope=()) == {0: "3", 1: "4"}
    assert "Successful" in tool(GROUPS, "--delete-offsets", *of_group, "--topic", "counted:0")
    assert described() == {1: "4"}
    assert "was successful" in tool(GROUPS, "--delete", *of_group)
    assert group not in tool(GROUPS, "--list")


def test_rules_users_and_quotas_are_changed(tool: Callable[..., str]) -> None:
    tool(ACLS, "--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    tool(
        ACLS,
        "--add",
        "--allow-principal",
        "User:bob",
        "--operation",
        "All",
        "--topic",
        "or",
        "--resource-pattern-type",
        "prefixed",
    )
    assert "principal=User:alice, host=*, operation=WRITE" in tool(ACLS, "--list")
    matching = tool(ACLS, "--list", "--topic", "orders", "--resource-pattern-type", "match", "--principal", "User:bob")
    assert "name=or, patternType=PREFIXED" in matching
    one_host = ("--allow-principal", "User:bob", "--allow-host", "10.0.0.1", "--operation", "Read", "--topic", "t")
    assert "ACLs for a single host are not supported" in tool(ACLS, "--add", *one_host, fails=True)
    tool(ACLS, "--remove", "--force", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    assert "User:alice" not in tool(ACLS, "--list")
    alice = ("--entity-type", "users", "--entity-name", "alice")
    tool(CONFIGS, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=canary]", *alice)
    tool(CONFIGS, "--alter", "--add-config", "producer_byte_rate=100000", *alice)
    tool(
        CONFIGS, "--alter", "--add-config", "controller_mutation_rate=10", "--entity-type", "users", "--entity-default"
    )
    described = tool(CONFIGS, "--describe", "--entity-type", "users")
    assert "SCRAM-SHA-256=iterations=8192" in described
    assert "producer_byte_rate=100000.0" in described
    assert "default user-principal are controller_mutation_rate=10.0" in described
    share = tool(CONFIGS, "--alter", "--add-config", "request_percentage=50", *alice, fails=True)
    assert "there is no quota 'request_percentage'" in share
    for key in ("SCRAM-SHA-256", "producer_byte_rate"):
        tool(CONFIGS, "--alter", "--delete-config", key, *alice)
    assert "alice" not in tool(CONFIGS, "--describe", "--entity-type", "users")


@pytest.fixture
def stuck(cluster: LocalCluster, orders: str) -> Producer:
    """A producer with an open transaction in partition 2."""
    producer = Producer(
        {"bootstrap.servers": cluster.kafka_bootstrap_servers, "transactional.id": "stuck", "log_level": 0}
    )
    producer.init_transactions(_PATIENCE_S)
    producer.begin_transaction()
    producer.produce(orders, b"open", partition=2)
    producer.flush(_PATIENCE_S)
    return producer


def rows_of(said: str, first: str) -> list[list[str]]:
    """Returns the rows of a table of kafka-transactions below its heading."""
    lines = [line.rstrip().split("\t") for line in said.splitlines()]
    heading = next(at for at, line in enumerate(lines) if line[0].strip() == first)
    return [[cell.strip() for cell in line] for line in lines[heading + 1 :] if len(line) > 1]


def test_an_operator_finds_an_open_transaction(tool: Callable[..., str], orders: str, stuck: Producer) -> None:
    (listed,) = (row for row in rows_of(tool(TRANSACTIONS, "list"), "TransactionalId") if row[0] == "stuck")
    assert listed[3] == "Ongoing"
    (described,) = rows_of(tool(TRANSACTIONS, "describe", "--transactional-id", "stuck"), "CoordinatorId")
    assert described[1] == "stuck" and "Ongoing" in described and described[-1] == f"{orders}-2"
    in_partition = tool(TRANSACTIONS, "describe-producers", "--topic", orders, "--partition", "2")
    # Those of earlier tests have none open.
    (seen,) = (row for row in rows_of(in_partition, "ProducerId") if row[0] == listed[2])
    assert int(seen[-1]) >= 0, "where it starts"
    stuck.abort_transaction(_PATIENCE_S)
    assert "CompleteAbort" in tool(TRANSACTIONS, "describe", "--transactional-id", "stuck")


def test_no_open_transaction_counts_as_hanging(tool: Callable[..., str], orders: str, stuck: Producer) -> None:
    """Its coordinator has it. Every open transaction in the scope is a candidate."""
    for scope in (("--topic", orders), ("--topic", orders, "--partition", "2")):
        assert rows_of(tool(TRANSACTIONS, "find-hanging", *scope, "--max-transaction-timeout", "0"), "Topic") == []
    # Kafka's tool looks into all topics then, also into the cluster's own.
    said = tool(TRANSACTIONS, "find-hanging", "--broker-id", "1", fails=True)
    assert "belongs to the cluster itself" in said
    stuck.abort_transaction(_PATIENCE_S)


def test_markers_are_refused_and_a_coordinator_is_asked_instead(
    tool: Callable[..., str], orders: str, stuck: Producer
) -> None:
    """KIP-664 writes markers, past the coordinator; what KIP-939 adds to the tool asks it."""
    (described,) = rows_of(tool(TRANSACTIONS, "describe", "--transactional-id", "stuck"), "CoordinatorId")
    place = ("--topic", orders, "--partition", "2")
    rows = rows_of(tool(TRANSACTIONS, "describe-producers", *place), "ProducerId")
    (start,) = (row[-1] for row in rows if row[0] == described[2])
    refused = tool(TRANSACTIONS, "abort", *place, "--start-offset", start, fails=True)
    assert "does not support WRITE_TXN_MARKERS" in refused
    assert "Ongoing" in tool(TRANSACTIONS, "describe", "--transactional-id", "stuck")
    print(tool(TRANSACTIONS, "forceTerminateTransaction", "--transactionalId", "stuck"))
    assert "CompleteAbort" in tool(TRANSACTIONS, "describe", "--transactional-id", "stuck")
    with pytest.raises(KafkaException) as fenced:
        stuck.commit_transaction(_PATIENCE_S)
    assert fenced.value.args[0].fatal()
