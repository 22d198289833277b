"""The metrics of clients, by group and name, with a sentence for each."""

from __future__ import annotations

from quorumlog.sdk.metrics.windows import Measure

#: Metrics by group, as returned by ``metrics()``.
ClientFigures = dict[str, dict[str, float]]

PRODUCER = "producer-metrics"
PRODUCER_TOPIC = "producer-topic-metrics"
CONSUMER = "consumer-metrics"
FETCHES = "consumer-fetch-manager-metrics"
COORDINATOR = "consumer-coordinator-metrics"
MIRROR = "mirror-metrics"

#: Meaning of each metric without its ending. The ending is the kind: ``-total`` since the client was created, ``-rate``
#: per second recently, ``-avg`` and ``-max`` recently.
SENTENCES = {
    "record-send": "Records that were acknowledged.",
    "record-error": "Records that failed permanently.",
    "record-retry": "Records that were sent again, counted each time.",
    "byte": "Bytes of acknowledged batches, as they were sent.",
    "request": "Produce requests that were sent.",
    "outgoing-byte": "Bytes of produce requests, as they were sent.",
    "request-latency": "Time from a produce request to its answer, in milliseconds.",
    "batch-size": "Bytes of a batch that was acknowledged.",
    "records-per-request": "Records in a produce request, or in an answer to a fetch.",
    "record-queue-time": "Time from a batch's first record until it is sent, in milliseconds.",
    "requests-in-flight": "Requests that have no answer yet.",
    "buffer-total-bytes": "Memory for records that are not acknowledged yet (buffer_memory).",
    "buffer-available-bytes": "Free part of the memory for records that are not acknowledged yet.",
    "connection-count": "Addresses of nodes that the client has contacted.",
    "records-consumed": "Records that polls have returned.",
    "bytes-consumed": "Bytes of the batches that polls have returned.",
    "batches-skipped": "Unreadable batches that were skipped (on_corrupt).",
    "records-skipped": "Records that the skipped batches claim to have.",
    "fetch": "Answers to fetches.",
    "fetch-latency": "Time from a fetch to its answer, in milliseconds; a node waits for records.",
    "fetch-size": "Bytes of records in an answer to a fetch.",
    "records-lag": "Records of a partition that no poll has returned yet, according to the last answer.",
    "records-copied": "Records that the mirror has copied since it was started.",
    "topics-set-aside": "Topics that the mirror no longer copies because of a problem that its log names.",
    "buffered-bytes": "Memory of fetched records that no poll has returned yet.",
    "assigned-partitions": "Partitions that the consumer or the mirror reads.",
    "commit": "Commits that were stored.",
    "commit-error": "Commits that failed.",
    "commit-latency": "Time from a commit to its answer, in milliseconds.",
    "heartbeat": "Heartbeats that were sent.",
    "last-heartbeat-seconds-ago": "Seconds since the last answer of the coordinator; -1: none yet.",
    "rebalance": "Changes of the partitions that this member reads.",
}

#: The metrics of each group. A group name with a suffix after a dot is about a topic or a partition.
NAMES: dict[str, tuple[str, ...]] = {
    PRODUCER: (
        "record-send-total", "record-send-rate", "record-error-total", "record-error-rate", "record-retry-total",
        "record-retry-rate", "request-total", "outgoing-byte-total", "outgoing-byte-rate", "request-latency-avg",
        "request-latency-max", "record-queue-time-avg", "record-queue-time-max", "records-per-request-avg",
        "records-per-request-max", "batch-size-avg", "batch-size-max", "requests-in-flight", "buffer-total-bytes",
        "buffer-available-bytes", "connection-count",
    ),
    PRODUCER_TOPIC + ".": (
        "record-send-total", "record-send-rate", "byte-total", "byte-rate", "record-error-total", "record-error-rate",
        "record-retry-total", "record-retry-rate",
    ),
    CONSUMER: ("connection-count",),
    FETCHES: (
        "records-consumed-total", "records-consumed-rate", "bytes-consumed-total", "bytes-consumed-rate",
        "batches-skipped-total", "records-skipped-total", "fetch-total", "fetch-latency-avg", "fetch-latency-max",
        "fetch-size-avg", "fetch-size-max", "buffered-bytes", "records-lag-max",
    ),
    FETCHES + ".": ("records-lag",),
    COORDINATOR: (
        "commit-total", "commit-error-total", "commit-latency-avg", "commit-latency-max", "heartbeat-total",
        "last-heartbeat-seconds-ago", "rebalance-total", "assigned-partitions",
    ),
    MIRROR: ("records-copied-total", "records-lag-max", "assigned-partitions", "topics-set-aside"),
    MIRROR + ".": ("records-lag",),
}  # fmt: skip
ENDINGS = ("-total", "-rate", "-avg", "-max")


def counted(name: str, measure: Measure, now_s: float) -> dict[str, float]:
    """Returns the total of the amounts and their rate."""
    return {f"{name}-total": measure.total, f"{name}-rate": measure.rate(now_s)}


def averaged(name: str, measure: Measure, now_s: float) -> dict[str, float]:
    """Returns the average and the largest amount."""
    return {f"{name}-avg": measure.average(now_s), f"{name}-max": measure.most(now_s)}


def sentence(name: str) -> str:
    """Returns the meaning of a metric."""
    found = SENTENCES.get(name)
    if found is None:
        stem = next(name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending))
        found = SENTENCES[stem]
    return found
