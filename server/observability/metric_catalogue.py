"""All metrics of a node: name, labels and help. Names are as in Prometheus, without ``quorumlog_``.

Metrics with a label per partition, topic or consumer group are bounded: a node reports a limited number of series and
counts those that it left out (``series_left_out``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

#: The values of a node's metrics, by name: one value, or one for each set of label values.
Readings: TypeAlias = "dict[str, float | Mapping[tuple[str, ...], float]]"

#: Maximum number of partitions, and of pairs of a consumer group and a partition, that one node reports.
MOST_PARTITIONS = 2_000
MOST_OFFSETS = 5_000


class MetricKind(Enum):
    """The Prometheus type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """One metric.

    Arguments:
        help: one sentence for the metric's reader.
        labels: names of the labels.
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


#: Metrics by name; a counter's name is without the ``_total`` that Prometheus appends.
CATALOGUE: dict[str, MetricFamily] = {
    # The node.
    "build_info": _gauge("Version information in the labels; always 1.", "version", "python", "compiled"),
    "node_info": _gauge("Id and place of the node in the labels; always 1.", "node", "machine", "rack"),
    "ready": _gauge("1 if the node serves clients."),
    "fenced": _gauge("1 if the controller has fenced the node: it may neither lead nor be in sync."),
    "feature_level": _gauge("The cluster's feature level."),
    "series_left_out": _gauge("Partitions that the node leads but reports no series for because there are too many."),
    "certificate_expiry_seconds": _gauge("Remaining validity of the node's certificate; +Inf without TLS."),
    # The cluster as the active controller sees it; 0 or nothing on all other nodes.
    "active_controller": _gauge("1 if the node is the active controller."),
    "brokers": _gauge("Nodes registered with the active controller, by state.", "state"),
    "topics": _gauge("Topics of the cluster, reported by the active controller."),
    "partitions": _gauge("Partitions of the cluster, reported by the active controller."),
    "offline_partitions": _gauge("Partitions without a leader that is up, reported by the active controller."),
    "producer_names": _gauge("Producer names that the cluster remembers."),
    # The metadata.
    "metadata_leader_known": _gauge("1 if the node reaches a leader of the metadata quorum."),
    "metadata_age_seconds": _gauge("Maximum age of the node's view of the cluster; +Inf while unconfirmed."),
    # Replicas.
    "raft_groups": _gauge("Raft groups with a replica on the node."),
    "raft_groups_led": _gauge("Raft groups that the node leads."),
    "leader_elections": _counter("Elections of partitions' leaders that the node has won."),
    "isr_shrinks": _counter("Times that a replica of a partition that the node led fell out of sync."),
    "isr_expansions": _counter("Times that a replica of a partition that the node led was in sync again."),
    "brokers_fenced": _counter("Nodes that were fenced while the node was the active controller."),
    "under_replicated_partitions": _gauge("Partitions that the node leads and that lack a replica in sync."),
    "under_min_isr_partitions": _gauge(
        "Partitions that the node leads and that have too few replicas in sync for acks=all."
    ),
    "leaders_not_preferred": _gauge("Partitions that the node leads although another node is the preferred leader."),
    "partition_log_start_offset": _gauge("The oldest offset that is kept of a partition.", "topic", "partition"),
    "partition_high_watermark": _gauge("Offset after the last committed record of a partition.", "topic", "partition"),
    "partition_last_stable_offset": _gauge(
        "Offset up to which every transaction in a partition has ended.", "topic", "partition"
    ),
    "partition_log_end_offset": _gauge("Offset at the end of the log of a partition's leader.", "topic", "partition"),
    "partition_size_bytes": _gauge("Approximate size of a partition's log on its leader's disk.", "topic", "partition"),
    "partition_replicas": _gauge("Replicas that a partition should have.", "topic", "partition"),
    "partition_in_sync_replicas": _gauge("Replicas of a partition that are in sync.", "topic", "partition"),
    "partition_leader_epoch": _gauge("The epoch in which the node leads a partition.", "topic", "partition"),
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
    # Transactions.
    "transaction_coordinators_led": _gauge("Transaction coordinators that the node leads."),
    "transactional_ids": _gauge("Transactional ids of the transaction coordinators that the node leads."),
    "open_transactions": _gauge("Open transactions of the transaction coordinators that the node leads."),
    "oldest_open_transaction_seconds": _gauge(
        "Age of the oldest open transaction of the transaction coordinators that the node leads; 0 without one."
    ),
    "transaction_markers_due": _gauge("Participants of decided transactions that have not answered the node yet."),
    # Requests and what waits.
    "produce_requests": _counter("Produce requests received."),
    "produce_bytes": _counter("Bytes of Produce requests received."),
    "fetch_requests": _counter("Fetch requests received."),
    "fetch_bytes": _counter("Bytes of answers to Fetch requests."),
    "consumer_group_heartbeats": _counter("Heartbeats of members of consumer groups."),
    "offset_commits": _counter("Requests to commit offsets."),
    "admin_requests": _counter("All other requests: administration, metadata, look-ups."),
    "request_seconds": _histogram(
        "Duration of requests, from their arrival until their response has been sent. A Fetch waits for records.",
        "request",
    ),
    "produce_stage_seconds": _histogram("Time that a Produce request spends in each stage.", "stage"),
    "request_errors": _counter("Errors with which requests were answered, or parts of them.", "request", "error"),
    "requests_refused": _counter("Requests refused before they were processed because queues are full."),
    "peer_sockets": _gauge("Sockets on which other nodes send frames, two for each; peers without them use gRPC."),
    "kafka_connections": _gauge("Connections of Kafka clients."),
    "kafka_requests": _counter("Requests of Kafka clients; the requests that they become are also counted above."),
    "kafka_connections_ended": _counter("Connections of Kafka clients closed because of a fault or to free memory."),
    "kafka_connections_refused": _counter("Connections of Kafka clients that were refused because there are too many."),
    "pending_produces": _gauge("Produce requests that wait to be acknowledged."),
    "parked_fetches": _gauge("Fetch requests that wait for records."),
    "parked_heartbeats": _gauge("Heartbeats that wait for a change to report."),
    "fetch_sessions": _gauge("Fetch sessions that the node keeps."),
    "password_sessions": _gauge("Sessions of clients authenticated by password or token."),
    "throttled_seconds": _counter("Time that requests waited because their principal exceeds a quota.", "principal"),
    "authorization_refusals": _counter("Operations that a principal was denied.", "principal"),
    # Storage.
    "storage_used_bytes": _gauge("Space that the node's storage uses."),
    "storage_free_bytes": _gauge("Space that the node's storage may still use."),
    "fsync_seconds": _histogram("Duration of a storage transaction, including its fsync."),
    "transactions": _counter("Storage transactions."),
    "damage_found": _counter("Damaged entries found."),
    "damage_mended": _counter("Damaged entries repaired from another replica."),
    "damaged_entries": _gauge("Damaged entries that have not been repaired."),
    "replicas_set_aside": _gauge("Damaged replicas that are set aside."),
    "scrub_read_bytes": _counter("Bytes that the scrub has read."),
    "scrub_last_finished_seconds": _gauge("When the scrub last finished, in seconds since 1970; 0 if never."),
    # The node's inner life.
    "rounds": _counter("Steps of the node's state machine."),
    "events": _counter("Events that those steps have processed."),
    "frames_sent": _counter("Frames sent to other nodes."),
    "frame_bytes_sent": _counter("Bytes of those frames."),
    "frames_received": _counter("Frames received from other nodes."),
}  # fmt: skip
