"""What ``help()`` shows of the clients: every option with its default, and the methods' own words.

The options are declared once, with their meaning (``ProducerOptions`` and the like) and their defaults
(``ProducerConfig``); a person who types ``help(Producer)`` looks at neither.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any, TypeVar

Client = TypeVar("Client", bound=type)

#: The line of a docstring that one option, or several of a kind, begin.
_OPTION = re.compile(r"^(\w+(?:, \w+)*): ", re.MULTILINE)


def shows_options(options: type, config: type) -> Callable[[Client], Client]:
    """Gives a client's class the signature that its options make, and their text.

    Arguments:
        options: the options, with a docstring that explains each.
        config: the dataclass of their defaults.
    """
    defaults: dict[str, Any] = {field.name: field.default for field in fields(config)}

    def with_defaults(line: re.Match[str]) -> str:
        return ", ".join(f"{name}={defaults[name]!r}" for name in line[1].split(", ")) + ": "

    def decorate(client: Client) -> Client:
        own = inspect.signature(client).parameters.values()
        positional = [each for each in own if each.kind is not inspect.Parameter.VAR_KEYWORD]
        named = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default)
            for name, default in defaults.items()
        ]
        client.__signature__ = inspect.Signature([*positional, *named])  # type: ignore[attr-defined]
        _, _, described = (inspect.getdoc(options) or "").partition("\n\n")
        client.__init__.__doc__ = (  # type: ignore[misc]
            "The options, with their defaults. Names in ``_ms`` are milliseconds, sizes are bytes.\n\n"
            + _OPTION.sub(with_defaults, described)
        )
        return client

    return decorate


def speaks_as(other: type) -> Callable[[Client], Client]:
    """Gives a client's methods the docstrings of those of its counterpart: the same, but for how one waits."""

    def decorate(client: Client) -> Client:
        for name, method in vars(client).items():
            told = getattr(other, name, None)
            if not name.startswith("_") and callable(method) and told is not None and inspect.getdoc(told):
                method.__doc__ = inspect.getdoc(told)
        return client

    return decorate


def named(kind: str, bootstrap_servers: str | Sequence[str], closed: bool, what: str = "") -> str:
    """What ``repr`` says of a client."""
    servers = bootstrap_servers if isinstance(bootstrap_servers, str) else ",".join(bootstrap_servers)
    return f"<{kind} of {servers}{what}{', closed' * closed}>"
