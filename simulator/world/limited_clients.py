"""The administrator who changes quotas in virtual time, and who is limited by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.step.request_context import ANONYMOUS, EVERYBODY, RequestContext
from quorumlog.simulator.world.clients import SimProducerOptions, Unanswered
from quorumlog.simulator.world.cluster import SimCluster
from quorumlog.simulator.world.operators import WISH_TIMEOUT_MS, Wisher
from quorumlog.simulator.world.quota_judge import PLENTY
from quorumlog.simulator.world.restricted_clients import PRINCIPALS
from quorumlog.simulator.world.scheduler import Scheduler
from quorumlog.v1.quotas_pb2 import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ClientQuotaAlteration,
    ClientQuotaOp,
)

#: A principal that writes as much as it can, and its name in the simulation.
WRITER = "User:carol"
WRITER_NAME = "limited"
#: Its workload: more than most of the quotas below allow.
WRITER_HABITS = SimProducerOptions(
    interval_us=(5_000, 40_000), max_in_flight=3, request_timeout_us=400_000, padding_bytes=300
)
_LIMITED = (WRITER, WRITER, *PRINCIPALS, EVERYBODY)
#: By key, per second.
_VALUES = {
    "producer_byte_rate": (1_024, 2_000, 10_000, 1e12),
    "consumer_byte_rate": (1_024, 4_000, 50_000),
    "request_rate": (1, 5, 20, 100, 1e12),
    "controller_mutation_rate": (0.1, 10),
}


class QuotaChanger(Wisher):
    """Sets and removes quotas, at any node and time. All other clients of the simulation, which are anonymous, have
    quotas that none of them reaches, so that the default limits only the intended ones. At the end no quota is left.
    """

    def __init__(
        self, cluster: SimCluster, scheduler: Scheduler, stopped: Callable[[], bool], interval_us: tuple[int, int]
    ) -> None:
        cluster.clients[WRITER_NAME] = RequestContext(WRITER_NAME, "10.0.0.2", WRITER)
        self._are_others_free = False
        super().__init__("quota changer", cluster, scheduler, stopped, interval_us)

    def _tick(self) -> None:
        if not self._are_others_free and not self._stopped():
            free = _alteration(ANONYMOUS, dict.fromkeys(_VALUES, 1_000 * PLENTY))
            self.insist(_request(free), self._others_are_free)
            return
        super()._tick()

    def _others_are_free(self, answer: ProtoMessage | Unanswered) -> bool:
        if not _is_done(answer):
            return self._stopped()
        self._are_others_free = True
        self._tick()
        return True

    def wish(self) -> ProtoMessage:
        """Returns a request that changes or removes a quota."""
        rng = self.rng
        key = rng.choice(tuple(_VALUES))
        value = None if rng.random() < 0.3 else rng.choice(_VALUES[key])
        return _request(_alteration(rng.choice(_LIMITED), {key: value}))

    def end(self) -> None:
        """Removes all quotas, so that no client waits: the cluster must come to rest."""
        everybody = (ANONYMOUS, *dict.fromkeys(_LIMITED))
        nothing = [_alteration(each, dict.fromkeys(_VALUES)) for each in reversed(everybody)]
        self.insist(_request(*nothing), _is_done)


def _request(*alterations: ClientQuotaAlteration) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(alterations=alterations, timeout_ms=WISH_TIMEOUT_MS)


def _alteration(principal: str, values: Mapping[str, float | None]) -> ClientQuotaAlteration:
    ops = [ClientQuotaOp(key=key, value=value) for key, value in values.items()]
    return ClientQuotaAlteration(principal=principal, ops=ops)


def _is_done(answer: ProtoMessage | Unanswered) -> bool:
    return isinstance(answer, AlterClientQuotasResponse) and not answer.HasField("error")
