"""Judges how nodes throttle clients with quotas: no more than the quotas in the node's own metadata is allowed, and
clients without quotas never wait.

It does not use buckets. For each life of a node, each principal and each quota it adds up the allowance since the
quota was set, by the elapsed time, and the answered amount. Only requests after the quota count: a burst and one
request beyond the rate are allowed, because a request that is too large becomes a debt.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.step.events import ClientRequest, Effects, Event
from quorumlog.simulator.models.committed_partition import Violation
from quorumlog.v1 import data_plane_pb2 as pb
from quorumlog.v1 import groups_pb2, sign_in_pb2
from quorumlog.v1.errors_pb2 import Error, ErrorCode

_KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_rate")
#: Requests that are neither counted nor throttled.
_UNLIMITED = (groups_pb2.GroupHeartbeatRequest, sign_in_pb2.BeginScramRequest, sign_in_pb2.FinishScramRequest)
_DEFAULT, _USER = "User:*", "User:"
#: A rate per second that is never reached in a simulation.
PLENTY = 1e9
#: Number of steps after which clients that waited for a removed quota are served.
_SETTLED_STEPS = 3
_SECOND_US = 1_000_000


@dataclass(slots=True)
class _Allowance:
    """The allowance of one principal by one quota, and the amount used since it was set."""

    rate: float
    may: float
    done: float = 0.0
    largest: float = 0.0
    #: The quota was removed, and with it all debts.
    is_over: bool = False
    #: Maximum number of concurrent requests: each may have found no debt.
    under_way: int = 1
    most_under_way: int = 1


@dataclass(slots=True, frozen=True)
class _AskedOnce:
    """A request that is not answered yet. ``by``: its principal's quotas when it arrived."""

    message: ProtoMessage
    who: str
    by: dict[str, _Allowance]


@dataclass(slots=True)
class _JudgedNode:
    """The state of one life of a node."""

    life: int
    since_us: int
    index: int = 0
    quotas: dict[str, dict[str, float]] = field(default_factory=dict)
    allowances: dict[str, dict[str, _Allowance]] = field(default_factory=dict)
    asked: dict[int, _AskedOnce] = field(default_factory=dict)
    settled: int = 0


class QuotaJudge:
    """Observes the steps of all nodes.

    Arguments:
        clock_error: maximum deviation of a node's clock, as a share.

    Attributes:
        judged: answers by quota, and immediate ones.
    """

    def __init__(self, clock_error: float) -> None:
        self.judged: Counter[str] = Counter()
        self._pace = 1 + clock_error
        self._nodes: dict[int, _JudgedNode] = {}

    def stepped(
        self, node: int, life: int, now_us: int, image: MetadataImage | None, events: list[Event], effects: Effects
    ) -> None:
        """Judges a step of a node."""
        known = self._nodes.get(node)
        if known is None or known.life != life:
            known = self._nodes[node] = _JudgedNode(life, now_us)
        self._let_time_pass(known, now_us)
        before = known.settled
        for event in events:
            if isinstance(event, ClientRequest) and not isinstance(event.message, _UNLIMITED):
                self._asked(known, event)
        if image is not None and image.client_quotas.index != known.index:
            self._learn(known, image)
        else:
            known.settled += 1
        answered = {reply.request_id: reply.message for reply in effects.replies}
        for request_id, answer in answered.items():
            request = known.asked.pop(request_id, None)
            if request is not None:
                self._answered(node, request, answer)
        if effects.halt is None and image is not None and before >= _SETTLED_STEPS <= known.settled:
            self._check_promptness(node, known, events, answered)

    # -- allowances -----------------------------------------------------------------------------------------------

    def _let_time_pass(self, known: _JudgedNode, now_us: int) -> None:
        passed_s = (now_us - known.since_us) / _SECOND_US * self._pace
        known.since_us = now_us
        for by_key in known.allowances.values():
            for allowance in by_key.values():
                allowance.may += allowance.rate * passed_s

    def _learn(self, known: _JudgedNode, image: MetadataImage) -> None:
        """Applies changed quotas. Their changes since the previous step are unknown."""
        known.index, known.settled = image.client_quotas.index, 0
        known.quotas = {who: dict(values) for who, values in image.client_quotas.by_principal.items()}
        for who, by_key in known.allowances.items():
            limits = self._limits(known, who)
            for key in list(by_key):
                if key not in limits:
                    by_key.pop(key).is_over = True
                    continue
                # A bucket that was removed for a moment is full again; the step may have started at the higher rate.
                by_key[key].may += limits[key]
                by_key[key].rate = limits[key]
            for key, rate in limits.items():
                by_key.setdefault(key, _Allowance(rate, rate))

    def _limits(self, known: _JudgedNode, who: str) -> dict[str, float]:
        if not who.startswith(_USER):
            return {}
        values = {**known.quotas.get(_DEFAULT, {}), **known.quotas.get(who, {})}
        return {key: values[key] for key in _KEYS if key in values}

    def _of(self, known: _JudgedNode, who: str) -> dict[str, _Allowance]:
        by_key = known.allowances.get(who)
        if by_key is None:
            limits = self._limits(known, who)
            by_key = known.allowances[who] = {key: _Allowance(rate, rate) for key, rate in limits.items()}
        return by_key

    # -- requests --------------------------------------------------------------------------------------------------

    def _asked(self, known: _JudgedNode, event: ClientRequest) -> None:
        by = dict(self._of(known, event.principal))
        known.asked[event.request_id] = _AskedOnce(event.message, event.principal, by)
        if isinstance(event.message, pb.FetchRequest) and "consumer_byte_rate" in by:
            allowance = by["consumer_byte_rate"]
            allowance.under_way += 1
            allowance.most_under_way = max(allowance.most_under_way, allowance.under_way)

    def _answered(self, node: int, asked: _AskedOnce, answer: ProtoMessage) -> None:
        if isinstance(answer, pb.FetchResponse):
            allowance = asked.by.get("consumer_byte_rate")
            if allowance is not None:
                allowance.under_way -= 1
                handed_out = sum(len(entry) for result in answer.results for entry in result.entries)
                self._count(node, asked, "consumer_byte_rate", handed_out)
            return
        if ErrorCode.THROTTLING_QUOTA_EXCEEDED in _codes(answer):
            self.judged["throttled"] += 1
            if not asked.by:
                raise Violation(f"node {node} throttles {asked.who}, which has no quota: {answer}")
            return
        self._count(node, asked, "request_rate", 1)
        if isinstance(asked.message, pb.ProduceRequest) and isinstance(answer, pb.ProduceResponse):
            written = sum(
                len(batch.batch)
                for batch, result in zip(asked.message.batches, answer.results, strict=True)
                if not result.HasField("error")
            )
            self._count(node, asked, "producer_byte_rate", written)

    def _count(self, node: int, asked: _AskedOnce, key: str, amount: float) -> None:
        allowance = asked.by.get(key)
        if allowance is None or allowance.is_over or not amount:
            return
        self.judged[key] += 1
        allowance.done += amount
        allowance.largest = max(allowance.largest, amount)
        beyond = allowance.largest * (allowance.most_under_way if key == "consumer_byte_rate" else 1)
        if allowance.done - beyond > allowance.may * (1 + 1e-9) + 1:
            raise Violation(
                f"node {node} lets {asked.who} do {allowance.done:.0f} by {key} = {allowance.rate:g}, where"
                f" {allowance.may:.0f} and {beyond:.0f} beyond are allowed by now"
            )

    def _check_promptness(
        self, node: int, known: _JudgedNode, events: list[Event], answered: dict[int, ProtoMessage]
    ) -> None:
        """Checks that a node answers requests from memory in the same step, unless the client has a quota."""
        for event in events:
            if not isinstance(event, ClientRequest) or not isinstance(event.message, pb.MetadataRequest):
                continue
            rate = self._limits(known, event.principal).get("request_rate", PLENTY)
            if rate < PLENTY or event.message.linearizable or event.message.settle_ms:
                continue
            self.judged["at once"] += 1
            if event.request_id not in answered:
                raise Violation(f"node {node} delays {event.principal}, which no quota limits")


def _codes(answer: ProtoMessage) -> set[int]:
    """Returns the errors of an answer: of the whole, or of its items."""
    if isinstance(answer, Error):
        return {answer.code}
    found = set()
    for field_, value in answer.ListFields():
        if field_.message_type is Error.DESCRIPTOR:
            found.add(value.code)
        elif field_.is_repeated and field_.message_type is not None and "error" in field_.message_type.fields_by_name:
            found |= {each.error.code for each in value}
    return found
