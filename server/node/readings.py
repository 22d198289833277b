"""Figures of a node, its partitions and its cluster, for metrics."""

from __future__ import annotations

import math
from collections import Counter
from itertools import islice

from quorumlog.raft.types import NO_NODE
from quorumlog.server.config.options import NodeOptions
from quorumlog.server.hosting.entry_repair import EntryRepair
from quorumlog.server.hosting.raft_host import RaftHost
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.node.cluster_events import JournalCounts
from quorumlog.server.node.member_context import MemberContext
from quorumlog.server.node.member_services import MemberServices
from quorumlog.server.node.scrub import Scrub
from quorumlog.server.node.space_watch import SpaceWatch
from quorumlog.server.observability.metric_catalogue import MOST_PARTITIONS, Readings
from quorumlog.server.partition.partition import Partition
from quorumlog.server.replicas.log_sizes import LogSizes
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.requests.metadata_staleness import UNKNOWN_AGE_MS


class MemberReadings:
    """Figures of a member of a cluster.

    Arguments:
        counts: the journal's counters.

    Attributes:
        partitions: the figures of partitions and topics.
    """

    def __init__(self, context: MemberContext, services: MemberServices, counts: JournalCounts) -> None:
        options, replicas = context.resources.options, services.replicas
        self._context = context
        self._services = services
        self._counts = counts
        self.partitions = PartitionReadings(
            options.node_id, context.resources.host, replicas.partitions, replicas.log_sizes
        )

    def take(self) -> Readings:
        """Returns the figures now, by name."""
        context, services, counts = self._context, self._services, self._counts
        metadata, broker, logs = context.metadata.replica, services.replicas.broker, services.logs
        age_ms = context.image_age.bound_ms(context.time.now)
        return {
            "active_controller": float(metadata.controller is not None),
            "metadata_leader_known": float(metadata.raft.leader_id != NO_NODE),
            "metadata_age_seconds": math.inf if age_ms == UNKNOWN_AGE_MS else age_ms / 1_000,
            "feature_level": float(metadata.image.feature_level),
            "leader_elections": counts.leader_elections,
            "isr_shrinks": counts.isr_shrinks,
            "isr_expansions": counts.isr_expansions,
            "brokers_fenced": counts.brokers_fenced,
            "pending_produces": len(logs.produce),
            "parked_fetches": len(logs.fetches),
            "fetch_sessions": len(logs.fetches.sessions),
            "password_sessions": len(services.access.sessions),
            "throttled_seconds": services.pipeline.throttle.throttled_seconds.readings(),
            "authorization_refusals": services.access.audit.refusals.readings(),
            "producer_names": len(metadata.image.named_producers),
            "ready": float(not broker.not_ready()),
            "fenced": float(broker.fenced),
            "replicas_set_aside": len(services.replicas.partitions.set_aside),
            **self.partitions.take(metadata.image),
            **(controller_readings(metadata.image) if metadata.controller is not None else {}),
            **services.groups.readings(),
            **services.transactions.readings(),
        }


class PartitionReadings:
    """Figures of the partitions that a node leads, and of topics.

    Arguments:
        sizes: sizes of the logs that are led here.
    """

    def __init__(self, own_id: int, host: RaftHost, replicas: Replicas, sizes: LogSizes) -> None:
        self._own_id = own_id
        self._host = host
        self._replicas = replicas
        self._sizes = sizes
        #: By topic, for replicas that were removed: bytes and records appended, and bytes read.
        self._ended: dict[str, tuple[int, int, int]] = {}

    def replica_ended(self, partition: Partition) -> None:
        """Keeps the counts of a replica that this node no longer has."""
        topic = partition.identity.topic
        self._ended[topic] = _sum(self._ended.get(topic, (0, 0, 0)), partition)

    def take(self, image: MetadataImage) -> Readings:
        """Returns the current figures, by name."""
        led = [
            (partition, image.partitions[partition.group])
            for partition in self._replicas.logs.values()
            if partition.leads and partition.group in image.partitions
        ]
        shown = [((record.topic.name, str(record.number)), each, record) for each, record in led[:MOST_PARTITIONS]]
        return {
            **self._counts(image),
            "under_min_isr_partitions": sum(len(record.isr) < partition.copies_needed for partition, record in led),
            "series_left_out": len(led) - len(shown),
            "partition_log_start_offset": {labels: each.log_start_offset for labels, each, _ in shown},
            "partition_high_watermark": {labels: each.high_watermark for labels, each, _ in shown},
            "partition_last_stable_offset": {labels: each.last_stable_offset for labels, each, _ in shown},
            "partition_log_end_offset": {labels: each.log_end_offset for labels, each, _ in shown},
            "partition_leader_epoch": {labels: each.leading_term for labels, each, _ in shown},
            "partition_size_bytes": {labels: self._sizes.size_of(each) for labels, each, _ in shown},
            "partition_replicas": {labels: len(record.replicas) for labels, _, record in shown},
            "partition_in_sync_replicas": {labels: len(record.isr) for labels, _, record in shown},
            **self._traffic(image),
        }

    def _counts(self, image: MetadataImage) -> Readings:
        """Returns the counts that also include partitions of consumer groups."""
        led = [image.partitions[group] for group, _ in self._host.led() if group in image.partitions]
        return {
            "under_replicated_partitions": sum(len(record.isr) < len(record.replicas) for record in led),
            "leaders_not_preferred": sum(record.replicas[0] != self._own_id for record in led),
        }

    def _traffic(self, image: MetadataImage) -> Readings:
        """Returns the traffic by topic; deleted topics are forgotten."""
        self._ended = {topic: traffic for topic, traffic in self._ended.items() if topic in image.topics}
        totals = dict(self._ended)
        for partition in self._replicas.logs.values():
            topic = partition.identity.topic
            totals[topic] = _sum(totals.get(topic, (0, 0, 0)), partition)
        shown = dict(islice(sorted(totals.items()), MOST_PARTITIONS))
        return {
            "topic_appended_bytes": {(topic,): appended for topic, (appended, _, _) in shown.items()},
            "topic_appended_records": {(topic,): records for topic, (_, records, _) in shown.items()},
            "topic_read_bytes": {(topic,): read for topic, (_, _, read) in shown.items()},
        }


def _sum(so_far: tuple[int, int, int], more: Partition) -> tuple[int, int, int]:
    appended, records, read = so_far
    return appended + more.appended_bytes, records + more.appended_records, read + more.read_bytes


def node_readings(
    options: NodeOptions, host: RaftHost, space: SpaceWatch, mender: EntryRepair, scrub: Scrub
) -> Readings:
    """Returns the figures of a node that do not depend on a cluster."""
    return {
        "node_info": {(str(options.node_id), options.machine, options.rack): 1.0},
        "raft_groups": len(host.replicas),
        "raft_groups_led": sum(1 for _ in host.led()),
        "storage_used_bytes": space.last.used_bytes,
        "storage_free_bytes": space.last.free_bytes,
        "damaged_entries": len(mender),
        "damage_found": mender.found,
        "damage_mended": mender.mended,
        **scrub.readings(),
    }


def controller_readings(image: MetadataImage) -> Readings:
    """Returns the figures of the cluster, for the active controller."""
    states = Counter("fenced" if broker.fenced else "active" for broker in image.brokers.values())
    return {
        "brokers": {(state,): states[state] for state in ("active", "fenced")},
        "topics": len(image.topics),
        "partitions": len(image.partitions),
        "offline_partitions": sum(
            record.leader == NO_NODE or image.is_fenced(record.leader) for record in image.partitions.values()
        ),
    }
