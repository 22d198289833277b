"""Names of nodes and users in certificates: a URI among the alternative names.

A host name would not do: what is bound to a node's id must not depend on where the node runs.
"""

from __future__ import annotations

import re

#: Domain of names that identify nodes wherever they run; no host has one.
NODE_DOMAIN = "quorumlog.internal"
_NODE = re.compile(r"quorumlog:node:(0|[1-9][0-9]{0,9})")
_USER_PREFIX = "quorumlog:user:"
#: Valid names of users: the characters of topic names, and of mail addresses.
USER_NAME = re.compile(r"[A-Za-z0-9._@+-]{1,249}")


def node_uri(node_id: int) -> str:
    """Returns the URI of a node."""
    return f"quorumlog:node:{node_id}"


def node_host(node_id: int) -> str:
    """Returns the host name in every node's certificate, wherever the node runs: nodes that connect to it expect it."""
    return f"node-{node_id}.{NODE_DOMAIN}"


def user_uri(name: str) -> str:
    """Returns the URI of a user."""
    return f"{_USER_PREFIX}{name}"


def node_of(uri: str) -> int | None:
    """Returns the node identified by a URI; None if it identifies none."""
    found = _NODE.fullmatch(uri)
    return None if found is None else int(found[1])


def user_of(uri: str) -> str | None:
    """Returns the user identified by a URI; None if it identifies none."""
    name = uri.removeprefix(_USER_PREFIX)
    return name if name != uri and USER_NAME.fullmatch(name) else None
