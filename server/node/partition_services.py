"""The services that serve the logs of partitions to clients and maintain them."""

from __future__ import annotations

from quorumlog.server.node.member_context import MemberContext
from quorumlog.server.node.participant_services import ParticipantServices
from quorumlog.server.partition.checkpoints import PartitionCheckpoints
from quorumlog.server.partition.compaction_proposals import CompactionProposals
from quorumlog.server.partition.compaction_runner import CompactionRunner
from quorumlog.server.partition.forgotten_producers import DeletedProducers, ProducerExpiry
from quorumlog.server.partition.partition import Partition
from quorumlog.server.partition.retention import LogRetention
from quorumlog.server.replicas.replicas import Replicas
from quorumlog.server.requests.active_producers import ProducerRequests
from quorumlog.server.requests.batch_appends import BatchAppends
from quorumlog.server.requests.delete_records import RecordDeletions
from quorumlog.server.requests.fetch import FetchRequests, ReadingQuotas
from quorumlog.server.requests.list_offsets import OffsetRequests
from quorumlog.server.requests.partition_errors import PartitionErrors
from quorumlog.server.requests.partition_restores import PartitionRestores
from quorumlog.server.requests.produce import ProduceRequests, SilentRefusals
from quorumlog.server.requests.produce_traces import ProduceTraces
from quorumlog.server.requests.transactional_batches import TransactionalBatches


class LogServices:
    """The services of logs, called after each round of a log's Raft group."""

    def __init__(
        self,
        context: MemberContext,
        replicas: Replicas,
        absent: PartitionErrors,
        quotas: ReadingQuotas,
        participants: ParticipantServices,
    ) -> None:
        resources, time, metadata = context.resources, context.time, context.metadata.replica
        options, host, storage = resources.options, resources.host, resources.storage
        self._log = log = resources.log.named("server.partition")
        limits, snapshots, replies, space = options.limits, resources.snapshots, resources.replies, resources.space
        self._logs = logs = replicas.logs
        self._conditions = conditions = context.conditions
        self.transactions = participants.partitions
        waiting = TransactionalBatches(participants.service)
        self.produce = ProduceRequests(
            BatchAppends(host, replicas, conditions, absent, waiting),
            limits,
            conditions,
            replies,
            SilentRefusals(log.named("server.requests")),
            ProduceTraces(time, host),
        )
        self.fetches = FetchRequests(replicas, limits, replies, absent, quotas)
        self.offset_requests = OffsetRequests(
            replicas, storage, limits.waiting_look_ups, replies, absent, context.rounds
        )
        self.record_deletions = RecordDeletions(host, replicas, limits.waiting_deletions, replies, absent)
        self.restores = PartitionRestores(host, replicas, metadata, limits, conditions, replies, absent)
        self.producers = ProducerRequests(replicas, replies, absent)
        self.checkpoints = PartitionCheckpoints(host, storage, logs, snapshots)
        self.retention = LogRetention(host, storage, logs)
        self.compactions = CompactionRunner(
            limits,
            host,
            storage,
            logs,
            snapshots,
            resources.start_job,
            lambda: space.last.free_bytes,
            resources.mender.take_up,
            log,
        )
        self.compaction_proposals = CompactionProposals(
            time.now, limits, options.compaction_interval_us, host, storage, logs
        )
        self.producer_expiry = ProducerExpiry(time.now, options.producer_id_expiration_us, host, logs)
        self.deleted_producers = DeletedProducers(host, metadata, logs)

    def after_round(self, now: int, wall_ms: int, partition: Partition) -> None:
        """Handles a step of a log's Raft group: follows its role, and answers clients that can be answered now.

        This runs for every batch, so only the services that have something to do with the partition are called.
        """
        led, group = partition.leading_term, partition.group
        ended = partition.update_leadership()
        if ended:
            self.produce.finish(ended)
        partition.forget_durable()
        if group in self.fetches.watches:
            self.fetches.after_round(now, partition)
        if led or partition.leading_term:
            if self.produce.traces.by_request:
                self.produce.traces.after_round(partition)
            self.produce.finish(partition.resolve_acknowledgements())
            if group in self.offset_requests.by_group:
                self.offset_requests.after_round(partition)
            if group in self.record_deletions.by_group:
                self.record_deletions.after_round(partition)
            if self.restores.steps.deadlines:
                self.restores.after_round(partition)
            self.retention.after_round(now, wall_ms, partition)
            if partition.transactions is not None or group in self.transactions.by_group:
                self.transactions.after_round(partition)
        if partition.leading_term != led:
            self.deleted_producers.consider(now, partition)
        if partition.log_start_offset != partition.kept_offset:
            self.checkpoints.consider(partition)
        if partition.compaction is not None:
            self.compactions.consider(now, partition)
        if self._log.debugs:
            self._log(
                "debug", "partition_stepped", partition=partition.name, leads=partition.leads,
                log_start_offset=partition.log_start_offset, high_watermark=partition.high_watermark,
            )  # fmt: skip

    def peer_lost(self, peer: int) -> None:
        """Fails the produce requests that wait for more copies than are left without a disconnected peer."""
        for partition in self._logs.values():
            if peer in partition.raft.configuration.voters:
                live = self._conditions.live_replicas(partition)
                self.produce.finish(partition.fail_short_of_copies(live))
