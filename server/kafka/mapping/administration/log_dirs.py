"""DescribeLogDirs: the one data directory of the node that is asked, and what replicas take in it."""

from __future__ import annotations

from quorumlog.server.kafka.codec.administration.log_dir_requests import DescribeLogDirsRequest
from quorumlog.server.kafka.codec.administration.log_dir_responses import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from quorumlog.server.kafka.mapping.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.mapping.steps import KafkaCall, Steps, ask
from quorumlog.v1 import admin_pb2
from quorumlog.v1.request_limits import MAX_ITEMS


def describe_log_dirs(call: KafkaCall[DescribeLogDirsRequest]) -> Steps[DescribeLogDirsResponse]:
    """Answers DescribeLogDirs, page by page: the node goes on with other things between them."""
    wanted = call.message.topics
    places = [
        admin_pb2.PartitionName(topic=name, partition=number)
        for name, number in dict.fromkeys((each.topic, number) for each in wanted or () for number in each.partitions)
    ]
    if len(places) > MAX_ITEMS:
        # To look for each in all that there are is less than to ask in parts.
        places, chosen = [], {(each.topic, each.partition) for each in places}
    else:
        chosen = None
    question = admin_pb2.DescribeLogDirRequest(
        partitions=places, without_replicas=wanted is not None and not places and chosen is None
    )
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    while True:
        reply = yield from ask(question, admin_pb2.DescribeLogDirResponse)
        if reply.HasField("error"):
            return DescribeLogDirsResponse(error_code=kafka_code(reply.error))
        for each in reply.replicas:
            if chosen is None or (each.topic, each.partition) in chosen:
                told = DescribeLogDirsPartition(each.partition, each.size_bytes, each.offset_lag, is_future_key=False)
                topics.setdefault(each.topic, []).append(told)
        if not reply.more:
            break
        last = reply.replicas[-1]
        question.after.CopyFrom(admin_pb2.PartitionName(topic=last.topic, partition=last.partition))
    directory = DescribeLogDirsResult(
        KafkaError.NONE,
        reply.path,
        [DescribeLogDirsTopic(name, partitions) for name, partitions in topics.items()],
        total_bytes=reply.total_bytes,
        usable_bytes=reply.usable_bytes,
    )
    return DescribeLogDirsResponse(results=[directory])
