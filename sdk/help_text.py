"""Output of ``help()`` and ``repr()`` for the clients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TypeVar

from quorumlog.sdk.configuration import options_of

Client = TypeVar("Client", bound=type)


def shows_options(config: type) -> Callable[[Client], Client]:
    """Returns a decorator that gives a client class a signature with its options and defaults instead of ``**options``.

    Arguments:
        config: the dataclass whose fields are the options.
    """

    def decorate(client: Client) -> Client:
        own = inspect.signature(client).parameters.values()
        positional = [each for each in own if each.kind is not inspect.Parameter.VAR_KEYWORD]
        options = [
            inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=option.default)
            for option in options_of(config)
        ]
        client.__signature__ = inspect.Signature([*positional, *options])  # type: ignore[attr-defined]
        return client

    return decorate


def named(kind: str, bootstrap_servers: str | Sequence[str], closed: bool, what: str = "") -> str:
    """Returns the ``repr`` of a client."""
    servers = bootstrap_servers if isinstance(bootstrap_servers, str) else ",".join(bootstrap_servers)
    return f"<{kind} of {servers}{what}{', closed' * closed}>"
