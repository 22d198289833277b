"""The users and ACLs of the source as a script of commands that create them here. Nothing of it is run: passwords are
not readable in any cluster, and an administrator decides who may do what here."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_RESOURCES = {"TOPIC": "--topic", "GROUP": "--group", "BROKER": "--cluster"}
_HEAD = (
    "#!/bin/sh",
    "# Creates the users and ACLs of the source here: read it before you run it.",
    "# Write a password into each of the files *.password first: no cluster reveals passwords.",
    "set -e",
)


class SourceAcl(NamedTuple):
    """An ACL of the source, with Kafka's names: ``TOPIC``, ``LITERAL``, ``DESCRIBE_CONFIGS``, ``ALLOW``."""

    principal: str
    host: str
    operation: str
    permission: str
    resource: str
    pattern: str
    name: str


def security_script(users: Iterable[str], acls: Sequence[SourceAcl]) -> str:
    """Returns a shell script. What cannot be created here is a comment in it that says so.

    Arguments:
        users: names of users with a password.
    """
    lines = [*_HEAD, ""]
    for user in sorted(users):
        # A name of only dots, or with a slash, would be another folder's file.
        file = f"{''.join(each if each.isalnum() or each in '-_' else '_' for each in user)}.password"
        lines.append(shlex.join(["quorumlog", "users", "create", "--password-file", file, "--", user]))
    lines.append("")
    lines += [_command(acl) for acl in sorted(acls)]
    return "\n".join(lines) + "\n"


def _command(acl: SourceAcl) -> str:
    option = _RESOURCES.get(acl.resource)
    reason = ""
    if option is None:
        reason = f"no ACLs for resources of type {acl.resource}"
    elif acl.host != "*":
        reason = f"no ACLs for hosts, such as {acl.host}"
    elif not acl.principal.startswith("User:"):
        reason = "no principals other than users"
    operation = "".join(word.capitalize() for word in acl.operation.split("_"))
    words = ["quorumlog", "acls", "create", f"--{acl.permission.lower()}", acl.principal, "--operation", operation]
    if option is not None:
        words.append(option if option == "--cluster" else f"{option}={acl.name}")
    if acl.pattern == "PREFIXED":
        words.append("--prefixed")
    # A line break in a name must not end the comment.
    command = shlex.join(words).replace("\n", " ").replace("\r", " ") if reason else shlex.join(words)
    where = "" if option is not None else f" on {acl.name}".replace("\n", " ").replace("\r", " ")
    return f"# Not created, {reason}: {command}{where}" if reason else command
