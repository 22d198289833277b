"""Writes the messages of ``server/kafka/codec`` from Kafka's own schemas, which are in ``proto/kafka``.

python tools/kafka_codec.py                                       # write the modules
python tools/kafka_codec.py --check                               # compare them with the schemas, as make check does
python tools/kafka_codec.py --to /tmp/codec                       # write them into another folder
python tools/kafka_codec.py --update-schemas kafka-clients.jar    # replace the schemas first

The output is committed. To add an API, or a version of one, add a line to :data:`FAMILIES`.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from kafka_codec_source import KAFKA, PREFACE, MessageWriter, Source
from kafka_schemas import SchemaError, Schemas, Structure, extract

ROOT = Path(__file__).resolve().parent.parent
CODEC = ROOT / "server" / "kafka" / "codec"
SCHEMAS = ROOT / "proto" / "kafka"
JAR = f"kafka-clients-{KAFKA}.jar"
CHECKSUMS = ROOT / "bench" / "peers" / "kafka.sha256"
#: Every module that this tool has written contains it.
MARK = "Written by tools/kafka_codec.py"

#: Family -> the subject in its modules' docstrings, and its APIs with the lowest and highest version written.
#: Each has a module of requests and one of responses. The part before a slash is a package inside of the codec's.
FAMILIES: dict[str, tuple[str, dict[str, tuple[int, int]]]] = {
    "version": ("supported APIs and versions", {"ApiVersions": (0, 4)}),
    # Behind version 0 of the handshake come bytes that are not requests.
    "sasl": ("authentication", {"SaslHandshake": (1, 1), "SaslAuthenticate": (0, 2)}),
    "metadata": ("nodes, topics and leaders", {"Metadata": (0, 13), "DescribeCluster": (0, 2)}),
    "topic_partition": ("topics and their partitions, page by page", {"DescribeTopicPartitions": (0, 0)}),
    "produce": ("records in", {"Produce": (3, 13), "InitProducerId": (0, 5)}),
    "fetch": ("records out", {"Fetch": (4, 18)}),
    # Brokers send AddPartitionsToTxn from version 4 on, clients before that.
    "transaction": (
        "transactions of producers",
        {"AddPartitionsToTxn": (0, 3), "AddOffsetsToTxn": (0, 4), "EndTxn": (0, 5)},
    ),
    "position": ("offsets by time, and ends of epochs", {"ListOffsets": (1, 11), "OffsetForLeaderEpoch": (2, 4)}),
    "groups/membership": (
        "membership of classic consumer groups",
        {
            "FindCoordinator": (0, 6),
            "JoinGroup": (0, 9),
            "SyncGroup": (0, 5),
            "Heartbeat": (0, 4),
            "LeaveGroup": (0, 5),
        },
    ),
    "groups/consumer_group": (
        "consumer groups whose coordinator assigns",
        {"ConsumerGroupHeartbeat": (0, 1), "ConsumerGroupDescribe": (0, 1)},
    ),
    "groups/commit": (
        "offsets that consumer groups commit",
        {"OffsetCommit": (2, 10), "OffsetDelete": (0, 0), "TxnOffsetCommit": (0, 5)},
    ),
    "groups/committed": ("committed offsets of consumer groups", {"OffsetFetch": (1, 10)}),
    "groups/group": (
        "consumer groups, from outside",
        {"ListGroups": (0, 5), "DescribeGroups": (0, 6), "DeleteGroups": (0, 2)},
    ),
    "topic": (
        "topics made, grown, emptied and deleted",
        {"CreateTopics": (2, 7), "DeleteTopics": (1, 6), "CreatePartitions": (0, 3), "DeleteRecords": (0, 2)},
    ),
    "config": (
        "configuration, shown and changed",
        {
            "DescribeConfigs": (1, 4),
            "AlterConfigs": (0, 2),
            "IncrementalAlterConfigs": (0, 1),
            "ListConfigResources": (0, 1),
        },
    ),
    "administration/placement": (
        "placement of replicas, and elections",
        {"ElectLeaders": (0, 2), "AlterPartitionReassignments": (0, 1), "ListPartitionReassignments": (0, 0)},
    ),
    "administration/quorum": ("voters of the metadata, and their progress", {"DescribeQuorum": (0, 2)}),
    "administration/log_dir": ("size of replicas on a node's disk", {"DescribeLogDirs": (1, 4)}),
    "administration/acl": (
        "ACLs",
        {"DescribeAcls": (1, 3), "CreateAcls": (1, 3), "DeleteAcls": (1, 3)},
    ),
    "administration/transaction": (
        "transactions and producers, as operators see them",
        {"DescribeProducers": (0, 0), "DescribeTransactions": (0, 0), "ListTransactions": (0, 2)},
    ),
    "administration/user": (
        "users with passwords",
        {"DescribeUserScramCredentials": (0, 0), "AlterUserScramCredentials": (0, 0)},
    ),
    "administration/quota": (
        "how much clients may do",
        {"DescribeClientQuotas": (0, 1), "AlterClientQuotas": (0, 1)},
    ),
}
#: Names of Kafka that mean something else in this project -> what they are called here.
RENAMED = {
    "ConsumerGroupDescribeResponseAssignment": "DescribedAssignment",
    "ConsumerGroupDescribeResponseDescribedGroup": "DescribedConsumerGroup",
    "ConsumerGroupDescribeResponseTopicPartitions": "DescribedTopicPartitions",
    "ConsumerGroupHeartbeatRequestTopicPartitions": "OwnedTopicPartitions",
    "ConsumerGroupHeartbeatResponseAssignment": "GivenAssignment",
    "ConsumerGroupHeartbeatResponseTopicPartitions": "GivenTopicPartitions",
    "Coordinator": "FoundCoordinator",
    "DescribeGroupsResponseDescribedGroup": "DescribedGroup",
    "DescribeQuorumRequestPartitionData": "NamedQuorumPartition",
    "DescribeQuorumRequestTopicData": "NamedQuorumTopic",
    "DescribeQuorumResponsePartitionData": "QuorumPartition",
    "DescribeQuorumResponseReplicaState": "QuorumReplicaState",
    "DescribeQuorumResponseTopicData": "QuorumTopic",
    "DescribeTopicPartitionsRequestCursor": "PageBegin",
    "DescribeTopicPartitionsResponseCursor": "NextPageBegin",
    "FetchRequestReplicaState": "FetchReplicaState",
    "FetchResponsePartitionData": "PartitionData",
    "HeartbeatRequest": "GroupHeartbeatRequest",
    "HeartbeatResponse": "GroupHeartbeatResponse",
    "Listener": "QuorumListener",
    "Member": "DescribedConsumerMember",
    "Node": "QuorumNode",
    "TopicPartitions": "ElectableTopic",
    "ElectLeadersRequestTopicPartitions": "ElectableTopic",
    "PartitionResult": "PartitionElectionResult",
    "UserName": "DescribedUserName",
    "ComponentData": "QuotaComponent",
    "OpData": "QuotaOperation",
    "ValueData": "QuotaValue",
    "DescribeProducersRequestTopicRequest": "ProducersTopic",
    "DescribeTopicPartitionsRequestTopicRequest": "DescribedTopicRequest",
    "DescribeTransactionsResponseTopicData": "DescribedTransactionTopic",
    "DescribeTransactionsResponseTransactionState": "DescribedTransaction",
    "ListTransactionsResponseTransactionState": "ListedTransaction",
    "PartitionResponse": "ProducersPartitionResult",
    "ProducerState": "ActiveProducer",
    "TopicResponse": "ProducersTopicResult",
}
#: How the names of messages end -> how those of their modules do.
ENDS = {"Request": "requests", "Response": "responses"}


def table(apis: dict[str, list[tuple[str, Structure]]]) -> str:
    """The module that lists all APIs.

    Arguments:
        apis: name -> request and response, each with its module.
    """
    imports: dict[str, list[str]] = {}
    for module, message in (each for messages in apis.values() for each in messages):
        imports.setdefault(module, []).append(message.name)
    entries = sorted(
        (messages[0][1].api_key, name, [each.name for _, each in messages]) for name, messages in apis.items()
    )
    return "\n".join(
        [
            PREFACE.format(about="all APIs that can be read and written", kafka=KAFKA),
            "from typing import NamedTuple",
            "",
            *(
                f"from quorumlog.server.kafka.codec.{module.replace('/', '.')} import {', '.join(sorted(names))}"
                for module, names in sorted({**imports, "primitives": ["KafkaMessage"]}.items())
            ),
            "",
            "class Api(NamedTuple):",
            '    """An API: what it is called, and its two messages."""',
            "",
            "    name: str",
            "    request: type[KafkaMessage]",
            "    response: type[KafkaMessage]",
            "",
            "#: By their keys.",
            "APIS: dict[int, Api] = {",
            *(f'    {key}: Api("{name}", {", ".join(messages)}),' for key, name, messages in entries),
            "}",
            "",
        ]
    )


def modules() -> dict[str, str]:
    """Returns the source of every generated module, not formatted, by file name.

    Raises:
        SchemaError: a schema has something that is not understood.
    """
    apis = [api for _, family in FAMILIES.values() for api in family]
    schemas = Schemas(SCHEMAS, [api + end for api in apis for end in ENDS], RENAMED)
    sources: dict[str, str] = {}
    messages: dict[str, list[tuple[str, Structure]]] = {api: [] for api in apis}
    for family, (about, members) in FAMILIES.items():
        for end, module in ENDS.items():
            source = Source(f"{about}, {module}")
            for api, written in members.items():
                message = schemas.message(api + end, written)
                messages[api].append((f"{family}_{module}", message))
                MessageWriter(source, message)
            sources[f"{family}_{module}.py"] = source.text()
    return {**sources, "apis.py": table(messages)}


def check_jar(jar: Path) -> None:
    """Checks that a jar is the pinned one.

    Raises:
        SchemaError: it is another one.
    """
    pinned = dict(reversed(line.split()) for line in CHECKSUMS.read_text().splitlines())
    found = hashlib.sha256(jar.read_bytes()).hexdigest()
    if found != pinned[JAR]:
        raise SchemaError(f"{jar} has the SHA-256 {found}, which is not that of {JAR} in {CHECKSUMS.name}")


def write(folder: Path) -> None:
    """Writes all modules, formatted as ``make format`` would.

    Raises:
        SchemaError: a schema is not understood.
    """
    written = []
    for name, source in modules().items():
        written.append(folder / name)
        written[-1].parent.mkdir(parents=True, exist_ok=True)
        written[-1].write_text(source)
    ruff = Path(sysconfig.get_path("scripts")) / "ruff"
    settings = ["--config", str(ROOT / "pyproject.toml")]
    subprocess.run([ruff, "format", "--quiet", *settings, *written], check=True)


def check(folder: Path) -> None:
    """Checks that the modules in a folder are those that the schemas give, no more and no fewer.

    Raises:
        SchemaError: they are not, or a schema is not understood.
    """
    with tempfile.TemporaryDirectory() as temporary:
        write(Path(temporary))
        fresh = _sources(Path(temporary))
    found = {name: source for name, source in _sources(folder).items() if MARK in source}
    if stale := sorted(name for name in fresh.keys() | found.keys() if fresh.get(name) != found.get(name)):
        raise SchemaError(f"stale in {folder}: {', '.join(stale)}: run python tools/kafka_codec.py and commit")


def _sources(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.py")}


def main() -> int:
    """Writes or checks the modules; returns 0 when they are as they should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail if a module is stale")
    parser.add_argument("--to", type=Path, default=CODEC, help="folder of the modules")
    parser.add_argument(
        "--update-schemas", type=Path, metavar="JAR", help=f"replace proto/kafka with the schemas in {JAR} first"
    )
    options = parser.parse_args()
    try:
        if options.update_schemas:
            check_jar(options.update_schemas)
            extract(options.update_schemas, SCHEMAS)
        (check if options.check else write)(options.to)
    except (OSError, SchemaError) as error:
        print(f"kafka_codec: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
