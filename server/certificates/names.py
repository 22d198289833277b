"""How a certificate says which node or which user it is of: by a URI among its alternative names.

A host name would not do: what is bound to a node's id must not depend on where the node runs.
"""

from __future__ import annotations

import re

#: Of names that stand for nodes wherever they run; no host has one.
NODE_DOMAIN = "quorumlog.internal"
_NODE = re.compile(r"quorumlog:node:(0|[1-9][0-9]{0,9})")
_USER_PREFIX = "quorumlog:user:"
#: Characters of a user's name: those of topics' names, and what is in mail addresses.
USER_NAME = re.compile(r"[A-Za-z0-9._@+-]{1,249}")


def node_uri(node_id: int) -> str:
    """The URI of a node."""
    return f"quorumlog:node:{node_id}"


def node_host(node_id: int) -> str:
    """The host name that every node's certificate has, wherever the node runs: those that dial it expect it."""
    return f"node-{node_id}.{NODE_DOMAIN}"


def user_uri(name: str) -> str:
    """The URI of a user."""
    return f"{_USER_PREFIX}{name}"


def node_of(uri: str) -> int | None:
    """The node that a URI is of; None where it is of none."""
    found = _NODE.fullmatch(uri)
    return None if found is None else int(found[1])


def user_of(uri: str) -> str | None:
    """The user that a URI is of; None where it is of none."""
    name = uri.removeprefix(_USER_PREFIX)
    return name if name != uri and USER_NAME.fullmatch(name) else None
