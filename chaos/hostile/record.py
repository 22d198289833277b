"""The requests that clients have sent last, by node, and the file that keeps them."""

from __future__ import annotations

import base64
import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from quorumlog.chaos.hostile.caller import HostileCaller

#: Limits for the requests of one process to one node that are kept: their number and bytes.
KEPT_MESSAGES = 4_000
KEPT_BYTES = 16 << 20


class Action(Enum):
    """Kind of a client's action."""

    CALL = "call"
    OPEN = "open"
    SEND = "send"
    HALF_CLOSE = "half-close"
    CANCEL = "cancel"


@dataclass(slots=True, frozen=True)
class SentRequest:
    """One action of a client on a node.

    Arguments:
        at_us: time on the clock of the machine.
        stream: identifies the streams of all processes; 0 for unary calls.
        data: the request's bytes; empty unless it is a call or a message on a stream.
    """

    at_us: int
    node: int
    stream: int
    action: Action
    path: str
    data: bytes = b""


class SentLog:
    """Keeps the requests sent last."""

    def __init__(self) -> None:
        self._kept: dict[int, deque[SentRequest]] = {}
        self._bytes: dict[int, int] = {}

    def note(self, sent: SentRequest) -> None:
        """Records an action on a node."""
        kept = self._kept.setdefault(sent.node, deque())
        kept.append(sent)
        self._bytes[sent.node] = self._bytes.get(sent.node, 0) + len(sent.data)
        while len(kept) > KEPT_MESSAGES or (self._bytes[sent.node] > KEPT_BYTES and len(kept) > 1):
            self._bytes[sent.node] -= len(kept.popleft().data)

    def all(self) -> list[SentRequest]:
        """Returns everything that is kept, oldest first."""
        return sorted((sent for kept in self._kept.values() for sent in kept), key=lambda sent: sent.at_us)


def write_record(
    path: Path, topics: dict[str, str], sent: Iterable[SentRequest], caller: HostileCaller = HostileCaller.ANYBODY
) -> None:
    """Writes a record.

    Arguments:
        caller: identity of the clients.
        topics: the prepared topics: name -> id in hexadecimal digits. A new cluster has other ids, and replayed
            requests are changed accordingly.
    """
    lines = [json.dumps({"topics": topics, "caller": caller})]
    for one in sent:
        data = base64.b64encode(one.data).decode()
        lines.append(json.dumps([one.at_us, one.node, one.stream, one.action.value, one.path, data]))
    path.write_text("\n".join(lines) + "\n")


def caller_of(path: Path) -> HostileCaller:
    """Returns the identity with which a record's requests were sent.

    Raises:
        ValueError: the file is not a record.
    """
    try:
        first = path.read_text().partition("\n")[0]
        return HostileCaller(json.loads(first).get("caller", HostileCaller.ANYBODY))
    except (AttributeError, ValueError) as error:
        raise ValueError(f"{path} is not a record of hostile requests: {error}") from None


def read_record(path: Path) -> tuple[dict[str, str], list[SentRequest]]:
    """Returns the topics and the sent requests of a record.

    Raises:
        ValueError: the file is not a record.
    """
    first, *rest = path.read_text().splitlines() or [""]
    try:
        topics: dict[str, str] = json.loads(first)["topics"]
        sent = []
        for line in rest:
            at_us, node, stream, action, method, data = json.loads(line)
            sent.append(SentRequest(at_us, node, stream, Action(action), method, base64.b64decode(data)))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a record of hostile requests: {error}") from None
    return topics, sent
