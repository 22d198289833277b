"""Types and parsers for settings: addresses, lists, and numbers within bounds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from quorumlog.server.config.plain_numbers import parse_integer
from quorumlog.server.step.bearer_tokens import KNOWN_ALGORITHMS
from quorumlog.server.step.request_context import EVERYBODY, USER_PREFIX
from quorumlog.wire.request_limits import LEAST_THROTTLE

#: The number of workers that fits the machine.
AUTO: Literal["auto"] = "auto"
#: Maximum number of workers of a machine, and the distance between the node ids of two machines.
MAX_WORKERS = 64


def parse_address(text: str) -> tuple[str, int]:
    """Returns host and port of ``host:port`` or ``[v6]:port``.

    Raises:
        ValueError: it is not such an address.
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not host or (":" in host and not bracketed):
        raise ValueError("not host:port")
    if not port.isascii() or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError("the port is not a number from 1 to 65535")
    return host.strip("[]"), int(port)


def _address(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not text")
    parse_address(value)
    return value


def _controllers(value: object) -> dict[int, str]:
    """Parses ``1@host:port,2@host:port``, or a list of such items."""
    items = value.split(",") if isinstance(value, str) else value
    if isinstance(items, dict):
        items = [f"{node_id}@{address}" for node_id, address in items.items()]
    if not isinstance(items, list):
        raise ValueError("not a list")
    controllers: dict[int, str] = {}
    for item in items:
        node_id, at, address = str(item).strip().partition("@")
        if not at or not node_id.isdecimal():
            raise ValueError(f"{item!r} is not id@host:port")
        parse_address(address)
        if int(node_id) in controllers:
            raise ValueError(f"node {node_id} is named twice")
        controllers[int(node_id)] = address
    if not controllers:
        raise ValueError("no controller")
    return controllers


def _items(value: object) -> list[str]:
    """Splits text at commas; accepts a list too. Empty text gives an empty list."""
    items = (value.split(",") if value else []) if isinstance(value, str) else value
    if not isinstance(items, list | tuple | set | frozenset):
        raise ValueError("not a list")
    return [str(item).strip() for item in items]


def _users(value: object) -> frozenset[str]:
    """Parses ``User:admin,User:ops``, or a list of such items."""
    users = frozenset(_items(value))
    for user in users:
        if not user.startswith(USER_PREFIX) or user in (USER_PREFIX, EVERYBODY) or not user.isprintable():
            raise ValueError(f"{user!r} is not {USER_PREFIX} and a name")
    return users


def _algorithms(value: object) -> tuple[str, ...]:
    """Parses ``RS256,ES256``, or a list of such items; removes duplicates."""
    algorithms = tuple(dict.fromkeys(_items(value)))
    for algorithm in algorithms:
        if algorithm not in KNOWN_ALGORITHMS:
            raise ValueError(f"{algorithm!r} is not one of {', '.join(KNOWN_ALGORITHMS)}")
    if not algorithms:
        raise ValueError("no algorithm")
    return algorithms


def _workers(value: object) -> int | str:
    """Parses a number of workers, or ``auto``."""
    text = value.strip() if isinstance(value, str) else value
    if text == AUTO:
        return AUTO
    number = parse_integer(text) if isinstance(text, str) else text
    if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= MAX_WORKERS:
        raise ValueError(f"not a number from 1 to {MAX_WORKERS}, and not {AUTO}")
    return number


def _copy_rate(value: int) -> int:
    if 0 < value < LEAST_THROTTLE:
        raise ValueError("too slow")
    return value


Address = Annotated[str, BeforeValidator(_address)]
Controllers = Annotated[dict[int, str], NoDecode, BeforeValidator(_controllers)]
Users = Annotated[frozenset[str], NoDecode, BeforeValidator(_users)]
Algorithms = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_algorithms)]
#: A claim's value, or the name of a claim.
ClaimText = Annotated[str, Field(min_length=1, max_length=1_024)]
Milliseconds = Annotated[int, Field(ge=1, le=86_400_000)]
SizeBytes = Annotated[int, Field(ge=1024, le=1 << 50)]
ScrubRate = Annotated[int, Field(ge=0, le=1 << 40)]
CopyRate = Annotated[int, Field(ge=0, le=1 << 50), AfterValidator(_copy_rate)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Workers = Annotated[int | Literal["auto"], BeforeValidator(_workers)]
