"""Record batches of old and faulty Kafka clients, and the results of every reader for the accepted ones.

The checksums are correct; a header field is wrong, or the records do not match the header. A node rejects such a batch,
or all of its records are readable by every reader: our consumers, Kafka's, Spark, compaction and backups.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import socket
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from quorumlog.chaos.hostile.kafka_batches import KafkaBatchMaker
from quorumlog.chaos.hostile.verdict import Watch, complaints
from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin, Consumer, NewTopic, TopicPartition
from quorumlog.sdk.backup.commands import create_backup, verify_backup
from quorumlog.server.kafka.codec.headers import RequestHead, pack_request_header
from quorumlog.server.kafka.codec.primitives import decode, encode
from quorumlog.server.kafka.codec.produce_requests import PartitionProduceData, ProduceRequest, TopicProduceData
from quorumlog.server.kafka.codec.produce_responses import ProduceResponse
from quorumlog.server.kafka.handlers.error_codes import KafkaError

Say = Callable[[str], None]
NODES = 3
PARTITIONS = 6
#: Topics with the default retention, and with compaction.
KEPT, COMPACTED = "old-clients", "old-clients-compacted"
#: The newest version in which topics are named.
_PRODUCE = 12
_SIZE = struct.Struct(">i")
_ANSWER_S = 30.0
#: Time limits of one reader, and of compaction (s).
_READ_S, _COMPACT_S = 600.0, 120.0
#: Retention runs again after a minute at most.
RETENTION_S = 65.0
_AGAIN = frozenset((KafkaError.NOT_LEADER_OR_FOLLOWER, KafkaError.UNKNOWN_TOPIC_OR_PARTITION))
_SETTINGS: dict[str, object] = {"compaction_interval_ms": 1_000, "storage_map_size_bytes": 16 << 30}
Place = tuple[str, int]


@dataclass(slots=True)
class BatchReport:
    """Result of a run.

    Arguments:
        answers: number of batches by answer.
        records: number of accepted records, by topic.
        readers: number of records read by each reader.
        findings: one line for each failure; empty in a successful run.
    """

    seed: int
    batches: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    readers: dict[str, int] = field(default_factory=dict)
    duration_s: float = 0.0
    findings: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """True if there are no findings."""
        return not self.findings

    def summary(self) -> list[str]:
        """Returns the report as lines."""
        answers = ", ".join(f"{name} {count}" for name, count in self.answers.most_common())
        read = ", ".join(f"{name} {count}" for name, count in self.readers.items())
        return [
            f"{self.batches} batches in {self.duration_s:.0f} s, seed {self.seed}: {answers}",
            f"records accepted: {', '.join(f'{topic} {count}' for topic, count in self.records.items())}",
            f"records read: {read}",
            *(f"FOUND: {finding}" for finding in self.findings),
            "passed: each batch was rejected, or is readable by every reader" if self.passed else "failed",
        ]


def fuzz_batches(*, batches: int, seed: int | None = None, spark: bool = False, say: Say = print) -> BatchReport:
    """Sends batches to a cluster of its own, and reads the accepted ones with every reader.

    Arguments:
        batches: number of batches.
        seed: determines their content; random if None.
        spark: reads with Spark, too, which must be installed.
    """
    report = BatchReport(secrets.randbelow(1 << 31) if seed is None else seed)
    say(f"old clients: {batches} batches to {NODES} nodes; seed {report.seed}")
    began = time.monotonic()
    with LocalCluster(NODES, kafka=True, settings=_SETTINGS) as cluster:
        watch = Watch.of(cluster)
        _create_topics(cluster)
        sent = _Sender(cluster, KafkaBatchMaker(random.Random(report.seed)), report)
        sent.send(batches, say)
        written = time.monotonic()
        say(f"{sum(report.records.values())} records accepted; reading")
        for name, reader in _READERS.items():
            if name != "spark" or spark:
                _read(name, reader, cluster, sent, report)
                say(f"{name}: {report.readers.get(name, 0)} records")
        time.sleep(max(0.0, RETENTION_S - (time.monotonic() - written)))
        report.findings += _removed_early(cluster)
        report.findings += watch.look(cluster) + complaints(cluster)
    report.duration_s = time.monotonic() - began
    for line in report.summary():
        say(line)
    return report


def _create_topics(cluster: LocalCluster) -> None:
    compacts = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "86400000"}
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(KEPT, PARTITIONS, NODES), NewTopic(COMPACTED, PARTITIONS, NODES, compacts)])


class _Sender:
    """One connection to each node, with a batch for each partition that it leads in each request.

    Attributes:
        ends: the offset after the last accepted record of each partition.
    """

    def __init__(self, cluster: LocalCluster, maker: KafkaBatchMaker, report: BatchReport) -> None:
        self.ends: dict[Place, int] = {
            (topic, number): 0 for topic in (KEPT, COMPACTED) for number in range(PARTITIONS)
        }
        self._cluster = cluster
        self._maker = maker
        self._report = report
        self._addresses = dict(zip(cluster.node_ids, cluster.kafka_bootstrap_servers.split(","), strict=True))
        self._leaders: dict[Place, int] = {}
        #: Records of batches that were refused when their leader changed: they may be in the log all the same.
        self._unsure: Counter[Place] = Counter()

    def send(self, batches: int, say: Say) -> None:
        """Sends a number of batches."""
        report, reported = self._report, time.monotonic()
        with contextlib.ExitStack() as stack:
            links = {node: stack.enter_context(_NodeLink(address)) for node, address in self._addresses.items()}
            while (report.batches < batches or self._unsure) and not report.findings:
                self._find_leaders()
                requests = {node: self._request(node) for node in links}
                for node, request in requests.items():
                    links[node].send(request)
                for node, request in requests.items():
                    self._take(node, request, links[node].receive())
                if time.monotonic() - reported > 15:
                    reported = time.monotonic()
                    say(f"{report.batches} batches, {report.answers['NONE']} of them accepted")

    def _find_leaders(self) -> None:
        for place in self.ends:
            if place not in self._leaders and (leader := self._cluster.leader(*place)) is not None:
                self._leaders[place] = leader

    def _request(self, node: int) -> dict[Place, tuple[int, bytes]]:
        return {place: self._maker.old_batch() for place, leader in self._leaders.items() if leader == node}

    def _take(self, node: int, request: dict[Place, tuple[int, bytes]], answer: ProduceResponse) -> None:
        report = self._report
        for topic in answer.responses:
            for each in topic.partition_responses:
                place = (topic.name, each.index)
                code = KafkaError(each.error_code)
                if code in _AGAIN:
                    del self._leaders[place]
                    self._unsure[place] += request[place][0]
                    continue
                report.batches += 1
                report.answers[code.name] += 1
                if code is KafkaError.UNKNOWN_SERVER_ERROR:
                    report.findings.append(f"node {node} fails on a batch: {request[place][1][:200].hex()}")
                if code is not KafkaError.NONE:
                    continue
                end, unsure = self.ends[place], self._unsure.pop(place, 0)
                if not end <= each.base_offset <= end + unsure:
                    report.findings.append(f"{place} continues at {each.base_offset}, not at {end}")
                self.ends[place] = each.base_offset + request[place][0]
                report.records[place[0]] += self.ends[place] - end


class _NodeLink:
    """A connection that sends requests and receives their answers."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=_ANSWER_S)
        self._file = self._socket.makefile("rb")
        self._number = 0

    def __enter__(self) -> _NodeLink:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def send(self, batches: dict[Place, tuple[int, bytes]]) -> None:
        topics = [
            TopicProduceData(topic, partition_data=[PartitionProduceData(number, batch)])
            for (topic, number), (_, batch) in batches.items()
        ]
        self._number += 1
        head = pack_request_header(RequestHead(ProduceRequest.API_KEY, _PRODUCE, self._number), "old", flexible=True)
        content = b"".join((head, *encode(ProduceRequest(None, -1, 30_000, topics), _PRODUCE)))
        self._socket.sendall(_SIZE.pack(len(content)) + content)

    def receive(self) -> ProduceResponse:
        (size,) = _SIZE.unpack(self._file.read(_SIZE.size))
        # The number of the request is followed by an empty list of tagged fields.
        return decode(ProduceResponse, self._file.read(size)[5:], _PRODUCE)


# -- the readers -------------------------------------------------------------------------------------------------------


def _read(
    name: str,
    reader: Callable[[LocalCluster, _Sender], Counter[Place]],
    cluster: LocalCluster,
    sent: _Sender,
    report: BatchReport,
) -> None:
    """Reads everything with one reader; each partition must have as many records as were accepted."""
    try:
        found = reader(cluster, sent)
    except Exception as problem:  # Any exception means that this reader cannot read accepted batches.
        report.findings.append(f"{name} fails: {type(problem).__name__}: {problem}")
        return
    report.readers[name] = sum(found.values())
    expected = {place: end for place, end in sent.ends.items() if place[0] == KEPT and end}
    wrong = {
        place: (found[place], end) for place, end in expected.items() if name != "compaction" and found[place] != end
    }
    if wrong:
        report.findings.append(f"{name} reads other records than were accepted: {wrong}")


def _polled(cluster: LocalCluster, sent: _Sender, *, arrow: bool = False, topic: str = KEPT) -> Counter[Place]:
    found: Counter[Place] = Counter()
    left = {TopicPartition(*place): end for place, end in sent.ends.items() if place[0] == topic and end}
    deadline = time.monotonic() + _READ_S
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as reader:
        reader.assign(left)
        reader.seek_to_beginning()
        while left:
            if arrow:
                table = reader.poll_arrow(1_000)
                found.update((topic, number.as_py()) for number in (table.column("partition") if table else ()))
            else:
                for tp, records in reader.poll(1_000).items():
                    found[tp.topic, tp.partition] += len(records)
            left = {tp: end for tp, end in left.items() if reader.position(tp) < end}
            if time.monotonic() > deadline:
                raise TimeoutError(f"{left} is not read to its end within {_READ_S:.0f} s")
    return found


def _kafka_polled(cluster: LocalCluster, sent: _Sender, topic: str = KEPT) -> Counter[Place]:
    from confluent_kafka import Consumer as KafkaConsumer
    from confluent_kafka import KafkaError as ClientError
    from confluent_kafka import TopicPartition as KafkaPartition

    found: Counter[Place] = Counter()
    left = {place for place, end in sent.ends.items() if place[0] == topic and end}
    reader = KafkaConsumer(
        {
            "bootstrap.servers": cluster.kafka_bootstrap_servers,
            "group.id": "old-clients",
            "log_level": 0,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    deadline = time.monotonic() + _READ_S
    try:
        reader.assign([KafkaPartition(*place, 0) for place in left])
        while left:
            for message in reader.consume(1_000, 1.0):
                problem = message.error()
                if problem is None:
                    found[str(message.topic()), int(message.partition() or 0)] += 1
                    message.headers()
                elif problem.code() == ClientError._PARTITION_EOF:
                    left.discard((str(message.topic()), int(message.partition() or 0)))
                else:
                    raise RuntimeError(str(problem))
            if time.monotonic() > deadline:
                raise TimeoutError(f"{left} is not read to its end within {_READ_S:.0f} s")
    finally:
        reader.close()
    return found


def _spark_read(cluster: LocalCluster, sent: _Sender) -> Counter[Place]:
    from quorumlog.sdk.spark.session import local_session

    with _stopped(local_session("old-clients")) as spark:
        rows = (
            spark.read.format("quorumlog")
            .option("quorumlog.bootstrap.servers", cluster.bootstrap_servers)
            .option("subscribe", KEPT)
            .load()
            .selectExpr("partition", "length(value)", "timestamp")
            .groupBy("partition")
            .agg({"*": "count", "timestamp": "max"})
            .collect()
        )
    return Counter({(KEPT, row["partition"]): row["count(1)"] for row in rows})


@contextlib.contextmanager
def _stopped(spark: Any) -> Iterator[Any]:
    try:
        yield spark
    finally:
        spark.stop()


def _compacted(cluster: LocalCluster, sent: _Sender) -> Counter[Place]:
    """Compaction keeps the last record of each key, and both kinds of consumers read the result."""
    deadline = time.monotonic() + _COMPACT_S
    while True:
        ours = _polled(cluster, sent, topic=COMPACTED)
        accepted = sum(end for place, end in sent.ends.items() if place[0] == COMPACTED)
        # A partition has a few keys, and the records written last are not compacted yet.
        if sum(ours.values()) < accepted // 2 or not accepted:
            break
        if time.monotonic() > deadline:
            raise TimeoutError(f"{sum(ours.values())} of {accepted} records are left after {_COMPACT_S:.0f} s")
        time.sleep(2)
    theirs = _kafka_polled(cluster, sent, COMPACTED)
    if any(theirs[place] > count for place, count in ours.items()):
        raise RuntimeError(f"Kafka's consumer reads {theirs}, ours {ours}")
    return theirs


def _backed_up(cluster: LocalCluster, sent: _Sender) -> Counter[Place]:
    """A backup of both topics is complete, and a restored cluster has the same records."""
    with tempfile.TemporaryDirectory(prefix="quorumlog-old-clients-") as place:
        create_backup(place, bootstrap_servers=cluster.bootstrap_servers, topics=[KEPT, COMPACTED])
        verified = verify_backup(place)
        if verified.problems:
            raise RuntimeError(f"the backup has problems: {verified.problems[:3]}")
        with LocalCluster(1, settings=_SETTINGS) as fresh:
            from quorumlog.sdk.backup.commands import restore_backup

            restore_backup(place, bootstrap_servers=fresh.bootstrap_servers, replication_factor=1)
            return _polled(fresh, sent)


_READERS: dict[str, Callable[[LocalCluster, _Sender], Counter[Place]]] = {
    "poll": _polled,
    "poll_arrow": lambda cluster, sent: _polled(cluster, sent, arrow=True),
    "kafka": _kafka_polled,
    "spark": _spark_read,
    "compaction": _compacted,
    "backup": _backed_up,
}


def _removed_early(cluster: LocalCluster) -> list[str]:
    """Returns records that retention of seven days has removed within minutes."""
    places = [TopicPartition(KEPT, number) for number in range(PARTITIONS)]
    with Consumer(bootstrap_servers=cluster.bootstrap_servers) as reader:
        starts = reader.beginning_offsets(places)
    return [
        f"{tp.topic}-{tp.partition} starts at {start}: records were removed" for tp, start in starts.items() if start
    ]
