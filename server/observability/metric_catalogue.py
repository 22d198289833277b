"""Every metric of a node: its name, its labels, and what it says. Names are as in Prometheus, without ``quorumlog_``.

What has a label for each partition, topic or consumer group is bounded: a node tells of so many, and says how many it
left out (``series_left_out``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

#: What a node tells of itself, by name: one value, or one for each set of label values.
Readings: TypeAlias = "dict[str, float | Mapping[tuple[str, ...], float]]"

#: Partitions, and pairs of a consumer group and a partition, of which one node tells.
MOST_PARTITIONS = 2_000
MOST_OFFSETS = 5_000


class MetricKind(Enum):
    """What the values of a metric mean, in Prometheus' terms."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric.

    Arguments:
        help: one sentence for whoever looks at it.
        labels: their names.
    """

    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()


def _counter(text: str, *labels: str) -> MetricFamily:
    return MetricFamily(MetricKind.COUNTER, text, labels)


def _gauge(text: str, *labels: str) -> MetricFamily:
    return MetricFamily(MetricKind.GAUGE, text, labels)


def _histogram(text: str, *labels: str) -> MetricFamily:
    return MetricFamily(MetricKind.HISTOGRAM, text, labels)


#: By name; a counter's without the ``_total`` that Prometheus shows behind it.
CATALOGUE: dict[str, MetricFamily] = {
    # The node.
    "build_info": _gauge("What runs here, in the labels; always 1.", "version", "python", "compiled"),
    "ready": _gauge("Whether the node serves clients."),
    "fenced": _gauge("Whether the controller keeps the node from leading and from being in sync."),
    "feature_level": _gauge("The cluster's feature level."),
    "series_left_out": _gauge("Partitions that the node leads without series of their own, for there are too many."),
    "certificate_expiry_seconds": _gauge("How long the node's certificate is still valid; +Inf without TLS."),
    # The cluster as the active controller sees it; 0 or nothing on all other nodes.
    "active_controller": _gauge("Whether the node is the active controller."),
    "brokers": _gauge("Nodes that the active controller knows, by state.", "state"),
    "topics": _gauge("Topics of the cluster, told by the active controller."),
    "partitions": _gauge("Partitions of the cluster, told by the active controller."),
    "offline_partitions": _gauge("Partitions without a leader that is up, told by the active controller."),
    "producer_names": _gauge("Producer names that the cluster remembers."),
    # The metadata.
    "metadata_leader_known": _gauge("Whether the node reaches a leader of the metadata quorum."),
    "metadata_age_seconds": _gauge("How old the node's view of the cluster may be at most; +Inf while unconfirmed."),
    # Replicas.
    "raft_groups": _gauge("Raft groups with a replica on the node."),
    "raft_groups_led": _gauge("Raft groups that the node leads."),
    "leader_elections": _counter("Elections of partitions' leaders that the node has won."),
    "isr_shrinks": _counter("Times that a replica fell out of sync of a partition that the node led."),
    "isr_expansions": _counter("Times that a replica came back in sync of a partition that the node led."),
    "brokers_fenced": _counter("Nodes that were fenced while the node was the active controller."),
    "under_replicated_partitions": _gauge("Partitions that the node leads and that lack a replica in sync."),
    "under_min_isr_partitions": _gauge(
        "Partitions that the node leads and that have too few replicas in sync for acks=all."
    ),
    "leaders_not_preferred": _gauge("Partitions that the node leads though another node is to lead them."),
    "partition_log_start_offset": _gauge("The oldest offset that is kept of a partition.", "topic", "partition"),
    "partition_high_watermark": _gauge("Where the committed records of a partition end.", "topic", "partition"),
    "partition_log_end_offset": _gauge("Where the log of a partition's leader ends.", "topic", "partition"),
    "partition_size_bytes": _gauge("What a partition's log takes on its leader's disk, about.", "topic", "partition"),
    "partition_replicas": _gauge("Replicas that a partition is to have.", "topic", "partition"),
    "partition_in_sync_replicas": _gauge("Replicas of a partition that are in sync.", "topic", "partition"),
    "partition_leader_epoch": _gauge("In which epoch the node leads a partition.", "topic", "partition"),
    "topic_appended_bytes": _counter("Bytes of batches that leaders on the node have appended.", "topic"),
    "topic_appended_records": _counter("Records that leaders on the node have appended.", "topic"),
    "topic_read_bytes": _counter("Bytes of batches that the node has read for consumers.", "topic"),
    # Consumer groups.
    "coordinators_led": _gauge("Coordinators of consumer groups that the node leads."),
    "consumer_groups": _gauge("Consumer groups that the node coordinates."),
    "consumer_group_members": _gauge("Members of the consumer groups that the node coordinates."),
    "consumer_group_committed_offset": _gauge(
        "The offset that a consumer group has committed. Its lag is the high watermark less this or the log start.",
        "group", "topic", "partition",
    ),
    # Requests and what waits.
    "produce_requests": _counter("Produce requests taken."),
    "produce_bytes": _counter("Bytes of Produce requests taken."),
    "fetch_requests": _counter("Fetch requests taken."),
    "fetch_bytes": _counter("Bytes of answers to Fetch requests."),
    "consumer_group_heartbeats": _counter("Heartbeats of members of consumer groups."),
    "offset_commits": _counter("Requests to commit offsets."),
    "admin_requests": _counter("All other requests: administration, metadata, look-ups."),
    "request_seconds": _histogram(
        "How long requests take, from their arrival until their answer has gone out. A Fetch waits for records.",
        "request",
    ),
    "produce_stage_seconds": _histogram("Which part of that a Produce request spends in which stage.", "stage"),
    "request_errors": _counter("Errors with which requests were answered, or parts of them.", "request", "error"),
    "requests_refused": _counter("Requests refused before they were looked at: queues are full."),
    "kafka_connections": _gauge("Connections of Kafka's own clients."),
    "kafka_requests": _counter("Requests of Kafka's own clients; what they become is counted above as well."),
    "kafka_connections_ended": _counter("Connections of Kafka's clients that were ended for what came on them."),
    "kafka_connections_refused": _counter("Connections of Kafka's clients that were not taken: there are too many."),
    "pending_produces": _gauge("Produce requests that wait to be acknowledged."),
    "parked_fetches": _gauge("Fetch requests that wait for records."),
    "parked_heartbeats": _gauge("Heartbeats that wait for something to tell."),
    "fetch_sessions": _gauge("Fetch sessions that the node keeps."),
    "password_sessions": _gauge("Sessions of clients that have signed in by password or token."),
    "throttled_seconds": _counter("How long requests have waited, their principal being over a quota.", "principal"),
    "authorization_refusals": _counter("How often a principal was refused something.", "principal"),
    # Storage.
    "storage_used_bytes": _gauge("What the node's storage takes."),
    "storage_free_bytes": _gauge("What the node's storage may still take."),
    "fsync_seconds": _histogram("How long a storage transaction takes, its fsync included."),
    "transactions": _counter("Storage transactions."),
    "damage_found": _counter("Damaged entries found."),
    "damage_mended": _counter("Damaged entries mended from another replica."),
    "damaged_entries": _gauge("Damaged entries that are left."),
    "replicas_set_aside": _gauge("Damaged replicas that take no part."),
    "scrub_read_bytes": _counter("Bytes that the scrub has read."),
    "scrub_last_finished_seconds": _gauge("When the scrub was last through, in seconds since 1970; 0 if never."),
    # The node's inner life.
    "rounds": _counter("Steps of the node's state machine."),
    "events": _counter("Events that those steps have taken."),
    "frames_sent": _counter("Frames sent to other nodes."),
    "frame_bytes_sent": _counter("Bytes of those frames."),
    "frames_received": _counter("Frames received from other nodes."),
}  # fmt: skip
