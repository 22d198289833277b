"""Users and ACLs of a mirror's source, as commands that create them."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from quorumlog.sdk.mirror.security_script import SourceAcl, security_script
from tests.test_documents import COMMAND

READ = SourceAcl("User:alice", "*", "READ", "ALLOW", "TOPIC", "LITERAL", "orders")


def only(acl: SourceAcl) -> str:
    (line,) = [line for line in security_script((), [acl]).splitlines() if "acls create" in line]
    return line


def test_acls_become_commands() -> None:
    assert only(READ) == "quorumlog acls create --allow User:alice --operation Read --topic=orders"
    group = READ._replace(resource="GROUP", pattern="PREFIXED", permission="DENY", operation="DESCRIBE_CONFIGS")
    assert only(group) == (
        "quorumlog acls create --deny User:alice --operation DescribeConfigs --group=orders --prefixed"
    )
    cluster = READ._replace(resource="BROKER", name="kafka-cluster", operation="ALTER")
    assert only(cluster) == "quorumlog acls create --allow User:alice --operation Alter --cluster"


@pytest.mark.parametrize(
    ("acl", "reason"),
    [
        (READ._replace(host="10.0.0.1"), "no ACLs for hosts, such as 10.0.0.1"),
        (READ._replace(resource="TRANSACTIONAL_ID"), "no ACLs for resources of type TRANSACTIONAL_ID"),
        (READ._replace(principal="Group:admins"), "no principals other than users"),
    ],
)
def test_other_acls_are_comments(acl: SourceAcl, reason: str) -> None:
    """Wider permissions than in the source are never created."""
    assert only(acl).startswith(f"# Not created, {reason}: ")


def test_names_are_not_run() -> None:
    """Neither quotes nor line breaks in a name lead out of its word."""
    evil = "x'; touch /tmp/evil\n touch /tmp/evil #"
    acls = [READ._replace(name=evil), READ._replace(name=evil, resource="TRANSACTIONAL_ID"), READ._replace(host=evil)]
    script = security_script([evil, "--yes", ".."], acls).replace("quorumlog ", "printf '%s\\0' ")
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=30, check=True)
    words = done.stdout.split("\0")
    assert words.count(evil) == 1 and words.count(f"--topic={evil}") == 1
    assert words[words.index("--yes") - 1] == "--"
    assert "__.password" in words


def test_commands_have_the_options_of_the_script() -> None:
    for path, line in (("acls", only(READ)), ("users", security_script(["bob"], []).splitlines()[-2])):
        words = shlex.split(line)
        options = {name for each in COMMAND.commands[path].commands["create"].params for name in each.opts}
        assert {word.partition("=")[0] for word in words if word.startswith("--") and word != "--"} <= options
