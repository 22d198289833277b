"""Writes the messages of ``server/kafka/codec`` from Kafka's own schemas, which lie in the jar of Kafka's clients.

python tools/kafka_codec.py                            # from build/peers, where make bench-peers puts the jar
python tools/kafka_codec.py --jar kafka-clients.jar    # from another place
python tools/kafka_codec.py --to /tmp/codec            # into another folder

What is written is committed. An API more, or a version more of one, is a line in :data:`FAMILIES`.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import sysconfig
from pathlib import Path

from kafka_codec_source import KAFKA, PREFACE, MessageWriter, Source
from kafka_schemas import SchemaError, Schemas, Structure

ROOT = Path(__file__).resolve().parent.parent
CODEC = ROOT / "server" / "kafka" / "codec"
JAR = ROOT / "build" / "peers" / f"kafka-{KAFKA}" / f"kafka-clients-{KAFKA}.jar"
CHECKSUMS = ROOT / "bench" / "peers" / "kafka.sha256"

#: Family -> what its modules say of themselves, and its APIs with the versions that are written, lowest and highest.
#: Each has a module of requests and one of responses. What stands before a slash is a room inside of the codec's.
FAMILIES: dict[str, tuple[str, dict[str, tuple[int, int]]]] = {
    "version": ("which APIs a node speaks", {"ApiVersions": (0, 4)}),
    # Behind version 0 of the handshake come bytes that are no requests.
    "sasl": ("who a client is", {"SaslHandshake": (1, 1), "SaslAuthenticate": (0, 2)}),
    "metadata": ("nodes, topics, and who leads what", {"Metadata": (0, 13), "DescribeCluster": (0, 2)}),
    "topic_partition": ("topics and their partitions, page by page", {"DescribeTopicPartitions": (0, 0)}),
    "produce": ("records in", {"Produce": (3, 13), "InitProducerId": (0, 5)}),
    "fetch": ("records out", {"Fetch": (4, 18)}),
    "position": ("offsets by time, and ends of epochs", {"ListOffsets": (1, 11), "OffsetForLeaderEpoch": (2, 4)}),
    "groups/membership": (
        "who is in a classic consumer group",
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
    "groups/commit": ("offsets that consumer groups commit", {"OffsetCommit": (2, 10), "OffsetDelete": (0, 0)}),
    "groups/committed": ("what consumer groups have committed", {"OffsetFetch": (1, 10)}),
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
        {"DescribeConfigs": (1, 4), "AlterConfigs": (0, 2), "IncrementalAlterConfigs": (0, 1)},
    ),
    "administration/placement": (
        "where replicas are, and who leads",
        {"ElectLeaders": (0, 2), "AlterPartitionReassignments": (0, 1), "ListPartitionReassignments": (0, 0)},
    ),
    "administration/quorum": ("who votes on the metadata, and how far each of them is", {"DescribeQuorum": (0, 2)}),
    "administration/log_dir": ("what replicas take on a node's disk", {"DescribeLogDirs": (1, 4)}),
    "administration/acl": (
        "rules of who may do what",
        {"DescribeAcls": (1, 3), "CreateAcls": (1, 3), "DeleteAcls": (1, 3)},
    ),
    "administration/user": (
        "users who sign in by password",
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
    "TopicRequest": "DescribedTopicRequest",
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


def modules(jar: Path) -> dict[str, str]:
    """Source of every module that is generated, not formatted, by file name.

    Raises:
        SchemaError: a schema has something that is not understood.
    """
    apis = [api for _, family in FAMILIES.values() for api in family]
    schemas = Schemas(jar, [api + end for api in apis for end in ENDS], RENAMED)
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
    """Checks that a jar is the one whose schemas are meant.

    Raises:
        SchemaError: it is another one.
    """
    pinned = dict(reversed(line.split()) for line in CHECKSUMS.read_text().splitlines())
    found = hashlib.sha256(jar.read_bytes()).hexdigest()
    if found != pinned[JAR.name]:
        raise SchemaError(f"{jar} has the SHA-256 {found}, which is not that of {JAR.name} in {CHECKSUMS.name}")


def write(jar: Path, folder: Path) -> None:
    """Writes all modules, formatted as ``make format`` would.

    Raises:
        SchemaError: the jar is not the one that is pinned, or a schema is not understood.
    """
    check_jar(jar)
    written = []
    for name, source in modules(jar).items():
        written.append(folder / name)
        written[-1].parent.mkdir(exist_ok=True)
        written[-1].write_text(source)
    ruff = Path(sysconfig.get_path("scripts")) / "ruff"
    settings = ["--config", str(ROOT / "pyproject.toml")]
    subprocess.run([ruff, "format", "--quiet", *settings, *written], check=True)


def main() -> int:
    """Writes the modules; 0 when that is done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jar", type=Path, default=JAR, help="of Kafka's clients, in the version that is pinned")
    parser.add_argument("--to", type=Path, default=CODEC, help="where the modules go")
    asked = parser.parse_args()
    try:
        write(asked.jar, asked.to)
    except (OSError, SchemaError) as error:
        print(f"kafka_codec: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
