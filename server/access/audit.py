"""What is told in the audit log: who was refused, who failed to sign in, and who has changed what. Never what
records hold.

Who is refused again and again is told of at once, and then once in a second with a count: nobody can fill the log, or
hide in it. A change is told of when it is answered, with what became of it.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import Protocol

from google.protobuf.message import Message as ProtoMessage

from quorumlog.server.access.audit_text import what_changes
from quorumlog.server.access.permissions import permission_of, rpc_of
from quorumlog.server.metadata.acl_rules import operation_name, resource_name
from quorumlog.server.metadata.image import CurrentImage
from quorumlog.server.observability.principal_totals import PrincipalTotals
from quorumlog.server.step.events import AuditLine, ClientRequest
from quorumlog.server.step.node_service import ServiceHooks, StepTime
from quorumlog.server.step.request_context import RequestContext
from quorumlog.v1.acls_pb2 import AclOperation, AclResourceType
from quorumlog.v1.errors_pb2 import Error, ErrorCode

#: A principal's refusals are told together in one line, once in this time (µs).
TELL_EVERY_US = 1_000_000
#: Principals and addresses whose refusals are counted apart. Those of all others are counted together.
MOST_PRINCIPALS = 1_000
OTHERS = "(others)"
#: Changes that wait for their outcome. Beyond it their beginning alone is told.
MOST_CHANGES = 20_000
#: An age of the metadata that stands for none that is known.
UNKNOWN_FROM_MS = 1 << 63
#: Characters of a name that a client has given.
_MOST_SHOWN = 249


class ImageAges(Protocol):
    """How old this node's metadata may be."""

    def bound_ms(self, now: int) -> int:
        """Milliseconds at most; a very large number where it is not known."""


@dataclass(slots=True)
class _Refused:
    """Who was refused: told of until ``quiet_until``, but for ``untold`` times since."""

    event: str
    key: str
    quiet_until: int
    untold: int
    last: dict[str, object]


@dataclass(slots=True, frozen=True)
class _Change:
    """A change that is under way."""

    client: RequestContext
    rpc: str
    what: list[str]


class AuditTrail:
    """Tells the audit log.

    Arguments:
        enabled: whether there is an audit log.
        time: of the step under way.
        current: by whose rules is decided.
        ages: how old that is at most.

    Attributes:
        refusals: how often clients were refused, by principal; counted without an audit log, too.
    """

    def __init__(self, enabled: bool, time: StepTime, current: CurrentImage, ages: ImageAges) -> None:
        self._enabled = enabled
        self._lines: list[AuditLine] = []
        self._time = time
        self._current = current
        self._ages = ages
        self._refused: dict[str, _Refused] = {}
        #: Those in ``_refused``, in the order in which their time comes.
        self._due: deque[_Refused] = deque()
        self._changes: dict[int, _Change] = {}
        self.refusals = PrincipalTotals()

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        hooks.deadline(self)
        hooks.client_gone(self.client_gone)

    # -- refusals -------------------------------------------------------------------------------------------------

    def refused(
        self, client: RequestContext, operation: AclOperation.ValueType, kind: AclResourceType.ValueType, name: str
    ) -> None:
        """A client may not do something, and is told so, or told that there is no such topic."""
        self.refusals.add(client.principal)
        if not self._enabled:
            return
        what: dict[str, object] = {
            **_who(client),
            "operation": operation_name(operation),
            "resource": resource_name(kind),
            "name": name[:_MOST_SHOWN],
        }
        self._count("refused", client.principal, what)

    def failed_sign_in(self, client: RequestContext, user: str, reason: str = "") -> None:
        """A client has given a wrong password, a user who is not there, or a token that is not taken. Those of an
        address are told together.

        Arguments:
            reason: where it is more than that; nothing that was secret.
        """
        if not self._enabled:
            return
        what: dict[str, object] = {**_who(client), "user": user[:_MOST_SHOWN]}
        if reason:
            what["reason"] = reason
        self._count("sign_in_failed", client.host, what)

    def _count(self, event: str, subject: str, what: dict[str, object]) -> None:
        key = f"{event} {subject}"
        if key not in self._refused and len(self._refused) >= MOST_PRINCIPALS:
            key = f"{event} {OTHERS}"
        known = self._refused.get(key)
        if known is not None:
            known.untold += 1
            known.last = what
            return
        self._tell(event, {**what, "times": 1})
        known = self._refused[key] = _Refused(event, key, self._time.now + TELL_EVERY_US, 0, what)
        self._due.append(known)

    # -- changes --------------------------------------------------------------------------------------------------

    def change_begins(self, asked: ClientRequest) -> None:
        """A client asks for something that may be a change."""
        if not self._enabled or not permission_of(type(asked.message)).is_change:
            return
        what = what_changes(asked.message, self._current.image)
        if not what:
            return
        change = _Change(asked.client, rpc_of(type(asked.message)), what)
        if len(self._changes) < MOST_CHANGES:
            self._changes[asked.request_id] = change
        else:
            self._tell_of(change, "under way", {})

    def replied(self, request_id: int, response: ProtoMessage) -> None:
        """A request has been answered."""
        change = self._changes.pop(request_id, None)
        if change is None:
            return
        problems = _problems(response)
        codes = Counter(ErrorCode.Name(each.code) for each in problems)
        outcome = "done" if not problems else "failed"
        if any(not each.definite for each in problems):
            outcome = "unknown"
        self._tell_of(change, outcome, dict(codes))

    def client_gone(self, request_id: int) -> None:
        """Nobody waits for the outcome any more: it may yet be made."""
        change = self._changes.pop(request_id, None)
        if change is not None:
            self._tell_of(change, "unknown", {})

    def _tell_of(self, change: _Change, outcome: str, errors: dict[str, int]) -> None:
        fields: dict[str, object] = {**_who(change.client), "rpc": change.rpc, "what": change.what, "outcome": outcome}
        if errors:
            fields["errors"] = errors
        self._tell("changed", fields)

    # -- lines ----------------------------------------------------------------------------------------------------

    def _tell(self, event: str, fields: dict[str, object]) -> None:
        fields["metadata_index"] = self._current.image.applied_index
        age_ms = self._ages.bound_ms(self._time.now)
        fields["metadata_age_ms"] = age_ms if age_ms < UNKNOWN_FROM_MS else None
        self._lines.append(AuditLine(event, self._time.wall_ms, fields))

    def take_lines(self) -> list[AuditLine]:
        """Takes out what has been told since the last call, in order."""
        lines, self._lines = self._lines, []
        return lines

    def on_time(self, now: int, wall_ms: int) -> None:
        """Tells of those who went on after they were told of last."""
        while self._due and self._due[0].quiet_until <= now:
            known = self._due.popleft()
            if not known.untold:
                del self._refused[known.key]
                continue
            self._tell(known.event, {**known.last, "times": known.untold})
            known.untold, known.quiet_until = 0, now + TELL_EVERY_US
            self._due.append(known)

    @property
    def next_deadline(self) -> int | None:
        """When ``on_time`` is due."""
        return self._due[0].quiet_until if self._due else None


def _who(client: RequestContext) -> dict[str, object]:
    return {"principal": client.principal, "host": client.host, "client_id": client.client_id}


def _problems(response: ProtoMessage) -> list[Error]:
    """The errors in an answer: of the whole, and of each thing in it."""
    problems: list[Error] = []
    fields = response.DESCRIPTOR.fields_by_name
    if "error" in fields and response.HasField("error"):
        problems.append(response.error)  # type: ignore[attr-defined]  # the line above says that it has one
    if "results" in fields:
        problems += [each.error for each in response.results if each.HasField("error")]  # type: ignore[attr-defined]
    return problems
