"""The second half of a seed with backups: the last one is restored into a fresh cluster, with faults.

The restored data is compared with the logs that were backed up. Then producers continue: those that repeat their last
batch, those that have names, and new ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from google.protobuf.message import Message as ProtoMessage

from quorumlog.raft.types import NO_NODE
from quorumlog.sdk.errors import QuorumlogError
from quorumlog.sdk.producer.async_producer import AsyncProducer
from quorumlog.simulator.clients.backup_judge import BackedUpPartition, TakenBackup
from quorumlog.simulator.clients.backup_place import BackupPlace
from quorumlog.simulator.clients.client_faults import ClientFaults
from quorumlog.simulator.clients.client_host import ClientHost
from quorumlog.simulator.clients.client_network import SimClientNetwork
from quorumlog.simulator.clients.committed_values import CommittedValues
from quorumlog.simulator.clients.restore_judge import RestoreJudge
from quorumlog.simulator.clients.restore_load import RestoreLoad
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.simulator.models.records import DAY_MS
from quorumlog.simulator.seeds.fault_schedule import InjectedFault, SimFaults
from quorumlog.simulator.seeds.plan import SECOND, Plan
from quorumlog.simulator.seeds.plan_backups import BackupPlan
from quorumlog.simulator.seeds.plan_clients import ClientsPlan
from quorumlog.simulator.world.clients import ACKS_ALL, Unanswered
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.process import EPOCH_MS
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1 import data_plane_pb2
from quorumlog.v1.errors_pb2 import ErrorCode
from quorumlog.wire.entry import FIRST_NAMED_PRODUCER_ID, BatchHeader, build_batch, parse_header, payload_of
from quorumlog.wire.kafka.entry import kafka_batch_in
from quorumlog.wire.kafka.produced import entry_of_produced

FORMATION_US = 30 * SECOND
#: Time limit for a restoration, or a producer, to finish after all faults have ended.
SETTLING_US = 120 * SECOND
CHECK_US = SECOND // 20


class RestoreSimulation:
    """Restores one backup.

    Arguments:
        scheduler: the fresh cluster's own, which starts from zero.
        plan, clients: of the seed; the fresh cluster is of the same kind.
        used_ids: ids that the former cluster has assigned to producers, until its end.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        plan: Plan,
        clients: ClientsPlan,
        backups: BackupPlan,
        place: BackupPlace,
        taken: TakenBackup,
        used_ids: set[int],
    ) -> None:
        self.scheduler = scheduler
        self.struck: list[InjectedFault] = []
        self.cluster = SimCluster(scheduler, plan.cluster)
        self.network = SimClientNetwork(self.cluster, scheduler)
        self._plan = plan
        self._clients = clients
        self._backups = backups
        self._place = place
        self._taken = taken
        self._used_ids = used_ids
        self._values = CommittedValues(self.cluster)
        self._judge = RestoreJudge(taken, self.cluster, self._values)
        self._failed = ""

    @property
    def records(self) -> int:
        """The number of restored records."""
        return sum(parse_header(entry).record_count for each in self._taken.partitions for entry in each.batches)

    def run(self) -> None:
        """Runs to the end.

        Raises:
            Violation: an invariant is violated.
        """
        try:
            self._form()
            self._restore()
            self._judge.judge()
            self._go_on()
        finally:
            self.network.dispose()

    def _host(self, name: str) -> ClientHost:
        rate_ppm = self.scheduler.stream(f"client clock/{name}").randint(*self._clients.clock_ppm)
        return self.network.host(name, rate_ppm)

    def _bootstrap(self) -> str:
        return self.network.bootstrap_servers

    def _form(self) -> None:
        for node in self.cluster.node_ids:
            self.cluster.start(node)

        def formed() -> bool:
            images = [process.image for process in self.cluster.processes.values()]
            return all(image is not None and len(image.brokers) == len(images) for image in images)

        if not self.scheduler.run(FORMATION_US, formed):
            raise Violation("the fresh cluster has not formed within 30 s without any fault")

    def _restore(self) -> None:
        rng = self.scheduler.stream("restore")
        self._place.failing = self._backups.habits.failing
        load = RestoreLoad(self._backups.habits, self._place, self._backups.restores, rng, self._host, self._bootstrap)
        # Settings changed during the run would differ from restored ones; and with a node less there may be too few.
        weights = {kind: weight for kind, weight in self._plan.faults.weights.items() if kind != "alter-retention"}
        faults = SimFaults(self.cluster, self.scheduler, replace(self._plan.faults, weights=weights or {"kill": 1}))
        kinds = {kind: weight for kind, weight in self._clients.faults.weights.items() if kind != "wiped"}
        client_faults = ClientFaults(
            self._clients.faults._replace(weights=kinds or {"late": 1}),
            [load],
            self.network,
            self.cluster,
            self.scheduler,
        )
        self.scheduler.run(self.scheduler.now + self._backups.restore_us)
        faults.end()
        self.cluster.heal()
        client_faults.end()
        load.settle()
        self.struck = [
            *faults.struck,
            *(InjectedFault(0, each.at_us, f"client-{each.kind}") for each in client_faults.struck),
        ]
        self._wait(lambda: load.missing)

    def _wait(self, missing: Callable[[], str]) -> None:
        end = self.scheduler.now + SETTLING_US
        while missing():
            if self.scheduler.now >= end:
                raise Violation(f"not done {SETTLING_US // SECOND} s after healing: {missing()}")
            self.scheduler.run(self.scheduler.now + CHECK_US)

    # -- after the restoration -----------------------------------------------------------------------------------

    def _go_on(self) -> None:
        epochs = {each.producer_id: each.epoch for each in self._taken.manifest.producer_names}
        for partition in self._taken.partitions:
            for producer, entry in partition.writers.items():
                header = parse_header(entry)
                # An instance whose name another one has claimed since is rejected, as before; and so is a timestamp of
                # a clock that jumped, before the producer is checked.
                fenced = header.producer_epoch < epochs.get(producer, header.producer_epoch)
                if not fenced and header.max_timestamp_ms < EPOCH_MS + DAY_MS // 2:
                    self._send_again(partition, entry)
        before = {group: self._values.log(group).next_offset for group, _, _ in self._values.groups()}
        host = self._host("producers")
        self._failed = "producers have not come to their end"
        host.run(self._produce(host))
        self._wait(lambda: self._failed)
        known = {each.name: each.producer_id for each in self._taken.manifest.producer_names}
        for group, end in before.items():
            for batch in self._values.log(group).batches_in_order:
                if batch.base_offset >= end:
                    self._check_new(parse_header(batch.entry.data), batch.values[0], known)

    def _send_again(self, partition: BackedUpPartition, entry: bytes) -> None:
        """Sends the last batch of a producer that has not received the former cluster's answer to the fresh cluster."""
        header = parse_header(entry)
        request = data_plane_pb2.ProduceRequest(acks=ACKS_ALL, timeout_ms=2_000)
        request.batches.add(topic_id=partition.topic_id, partition=partition.backup.number, batch=_as_sent(entry))
        end = self._judge.log(partition).next_offset
        answers: list[ProtoMessage | Unanswered] = []
        self._wait(lambda: "" if self._answered(partition, request, answers) else f"no answer: {answers[-1:]}")
        answer = answers[-1]
        assert isinstance(answer, data_plane_pb2.ProduceResponse)
        [result] = answer.results
        self.scheduler.run(self.scheduler.now + CHECK_US)
        if result.error.code != ErrorCode.NONE or result.base_offset != header.base_offset:
            raise Violation(
                f"producer {header.producer_id} sends its batch at {header.base_offset} of {partition.topic}-"
                f"{partition.backup.number} again, and gets {result}"
            )
        if self._judge.log(partition).next_offset != end:
            raise Violation(f"a batch of producer {header.producer_id} that was sent again is in the log twice")

    def _answered(
        self,
        partition: BackedUpPartition,
        request: data_plane_pb2.ProduceRequest,
        answers: list[ProtoMessage | Unanswered],
    ) -> bool:
        image = self.cluster.processes[self.cluster.node_ids[0]].image
        # That node may have been down when the topic was created, and not have it yet.
        topic = image.topics_by_id.get(partition.topic_id) if image is not None else None
        leader = topic.partitions[partition.backup.number].leader if topic is not None else NO_NODE
        if leader in self.cluster.processes:
            heard: list[ProtoMessage | Unanswered] = []
            self.cluster.request("former producer", leader, request, heard.append)
            self.scheduler.run(self.scheduler.now + 3 * SECOND, lambda: bool(heard))
            answers += heard
        last = answers[-1] if answers else None
        return isinstance(last, data_plane_pb2.ProduceResponse) and not last.results[0].error.retriable

    async def _produce(self, host: ClientHost) -> None:
        """Claims each name again, and opens one new producer; each sends a record to every topic."""
        for name in [None, *(each.name for each in self._taken.manifest.producer_names)]:
            producer = AsyncProducer(
                runtime=host.runtime, bootstrap_servers=self._bootstrap(), producer_name=name, linger_ms=0
            )
            for topic in self._taken.manifest.topics:
                try:
                    handle = await producer.send(topic.name, f"after-{name or ''}".encode())
                    await handle
                except QuorumlogError as error:
                    raise Violation(f"producer {name or 'without a name'} cannot continue: {error}") from None
            await producer.close()
        self._failed = ""

    def _check_new(self, header: BatchHeader, value: str, known: dict[str, int]) -> None:
        name = value.removeprefix("after-")
        if name and header.producer_id != known[name]:
            raise Violation(f"producer {name!r} had id {known[name]}, and has {header.producer_id} after the restore")
        if not name and (header.producer_id in self._used_ids or header.producer_id >= FIRST_NAMED_PRODUCER_ID):
            raise Violation(f"a new producer is given id {header.producer_id}, which another one has had")


def _as_sent(entry: bytes) -> bytes:
    """Returns the batch as its producer has sent it."""
    header = parse_header(entry)
    if header.is_kafka:
        return entry_of_produced(kafka_batch_in(entry))
    return build_batch(
        bytes(payload_of(entry)),
        record_count=header.record_count,
        codec=header.codec,
        base_timestamp_ms=header.append_time_ms,
        max_timestamp_ms=header.max_timestamp_ms,
        timestamp_type=header.timestamp_type,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        attributes=header.attributes,
    )
