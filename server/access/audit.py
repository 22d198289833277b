"""Audit trail: denials, authentications and changes, never record data.

A principal's first denial is recorded at once, further ones once per second with a count, so that no client can fill
the log or hide in it. A change is recorded with its outcome when it is answered.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
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
from quorumlog.server.step.request_context import USER_PREFIX, RequestContext
from quorumlog.v1.acls_pb2 import AclOperation, AclResourceType
from quorumlog.v1.errors_pb2 import Error, ErrorCode

#: Interval at which a principal's further denials are recorded in one line (µs).
TELL_EVERY_US = 1_000_000
#: Maximum number of principals and addresses whose denials are counted separately. All others share one count.
MOST_PRINCIPALS = 1_000
OTHERS = "(others)"
#: Maximum number of changes that wait for their outcome. Beyond it only their start is recorded.
MOST_CHANGES = 20_000
#: An age of the metadata from which on it counts as unknown.
UNKNOWN_FROM_MS = 1 << 63
#: Maximum length of a client's name in the log, in characters.
_MOST_SHOWN = 249


class ImageAges(Protocol):
    """Maximum age of this node's metadata."""

    def bound_ms(self, now: int) -> int:
        """Returns the maximum age in milliseconds; a very large number if unknown."""


@dataclass(slots=True)
class _Refused:
    """A principal or address with denials: recorded until ``quiet_until``, except for ``untold`` more."""

    event: str
    key: str
    quiet_until: int
    untold: int
    last: dict[str, object]


@dataclass(slots=True, frozen=True)
class _Change:
    """A change in progress."""

    client: RequestContext
    rpc: str
    what: list[str]


class AuditTrail:
    """Writes lines for the audit log.

    Arguments:
        enabled: True if there is an audit log.
        time: the time of the current step.
        current: the metadata that decisions are based on.
        ages: the maximum age of these metadata.

    Attributes:
        refusals: number of denials by principal; also counted without an audit log.
        lines: the lines since ``take_lines`` was last called.
    """

    def __init__(self, enabled: bool, time: StepTime, current: CurrentImage, ages: ImageAges) -> None:
        self._enabled = enabled
        self.lines: list[AuditLine] = []
        self._time = time
        self._current = current
        self._ages = ages
        self._refused: dict[str, _Refused] = {}
        #: The entries of ``_refused``, in the order in which they become due.
        self._due: deque[_Refused] = deque()
        self._changes: dict[int, _Change] = {}
        self.refusals = PrincipalTotals()
        self._deadline_moved: Callable[[], None] = lambda: None

    def register(self, hooks: ServiceHooks) -> None:
        hooks.on_time(self.on_time)
        self._deadline_moved = hooks.deadline(self)
        hooks.client_gone(self.client_gone)

    def switch(self, *, enabled: bool) -> None:
        """Switches the audit log on or off, and records that. Changes in progress are still recorded."""
        if enabled == self._enabled:
            return
        self._enabled = enabled
        self._tell("auditing", {"audit_log": "on" if enabled else "off"})

    # -- refusals -------------------------------------------------------------------------------------------------

    def refused(
        self, client: RequestContext, operation: AclOperation.ValueType, kind: AclResourceType.ValueType, name: str
    ) -> None:
        """Records a denial, whether the client gets an authorization error or the error for a missing topic."""
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

    def signed_in(self, client: RequestContext, user: str, mechanism: str) -> None:
        """Records a new session. Those of one user are counted together.

        Arguments:
            mechanism: its name in SASL.
        """
        if self._enabled:
            principal = f"{USER_PREFIX}{user[:_MOST_SHOWN]}"
            self._count("signed_in", principal, {**_who(client), "principal": principal, "mechanism": mechanism})

    def failed_sign_in(self, client: RequestContext, user: str, mechanism: str, reason: str = "") -> None:
        """Records a wrong password, an unknown user, or a rejected token. Failures from one address are counted
        together.

        Arguments:
            mechanism: its name in SASL.
            reason: further details, without secrets.
        """
        if not self._enabled:
            return
        what: dict[str, object] = {**_who(client), "user": user[:_MOST_SHOWN], "mechanism": mechanism}
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
        self._deadline_moved()

    # -- changes --------------------------------------------------------------------------------------------------

    def change_begins(self, asked: ClientRequest) -> None:
        """Records the start of a request if it is a change."""
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
        """Records the outcome of a change when its request is answered."""
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
        """Records a change whose client has disconnected as of unknown outcome: it may still take effect."""
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
        self.lines.append(AuditLine(event, self._time.wall_ms, fields))

    def take_lines(self) -> list[AuditLine]:
        """Removes and returns the lines since the last call, in order."""
        lines, self.lines = self.lines, []
        return lines

    def on_time(self, now: int, wall_ms: int) -> None:
        """Records further denials of principals whose interval has passed."""
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
        """The time at which ``on_time`` is due."""
        return self._due[0].quiet_until if self._due else None


def _who(client: RequestContext) -> dict[str, object]:
    return {"principal": client.principal, "host": client.host, "client_id": client.client_id}


def _problems(response: ProtoMessage) -> list[Error]:
    """Returns the errors in a response: of the whole, and of each result."""
    problems: list[Error] = []
    fields = response.DESCRIPTOR.fields_by_name
    if "error" in fields and response.HasField("error"):
        problems.append(response.error)  # type: ignore[attr-defined]  # the line above says that it has one
    if "results" in fields:
        problems += [each.error for each in response.results if each.HasField("error")]  # type: ignore[attr-defined]
    return problems
