"""Spark's tests again on clusters for many users: QUORUMLOG_SECURED=1 pytest tests/spark/test_stream_write.py ...

Nodes have TLS, users authenticate by password (SCRAM-SHA-256), and ACLs say who may do what. The tests are the same:
what they make clusters, clients and queries with says how nodes are reached. What tests do themselves is done by one
user, what Spark does by another, who may read, write, and belong to groups.
"""

from __future__ import annotations

import atexit
import os
import tempfile
from pathlib import Path
from typing import Any

import pyspark.sql.readwriter
import pyspark.sql.streaming.readwriter

import quorumlog.local
import quorumlog.sdk
from quorumlog.local import LocalCluster
from quorumlog.local.cluster import STOP_TIMEOUT_S
from quorumlog.local.ports import ReservedPorts
from quorumlog.sdk import (
    ACL,
    ACLOperation,
    ACLPermissionType,
    Admin,
    ResourcePattern,
    ResourceType,
    UserScramCredentialUpsertion,
)

SECURED = os.environ.get("QUORUMLOG_SECURED") == "1"
_TESTER, _SPARK = "tester", "spark"
_PASSWORD = "canary-1b7e-of-{}"
_READERS = (
    pyspark.sql.readwriter.DataFrameReader,
    pyspark.sql.readwriter.DataFrameWriter,
    pyspark.sql.streaming.readwriter.DataStreamReader,
    pyspark.sql.streaming.readwriter.DataStreamWriter,
)
_SPARKS_RIGHTS = (
    (ResourceType.TOPIC, ACLOperation.READ),
    (ResourceType.TOPIC, ACLOperation.WRITE),
    (ResourceType.GROUP, ACLOperation.READ),
    (ResourceType.PRODUCER_NAME, ACLOperation.WRITE),
)
_FILE = Path(tempfile.gettempdir(), f"secured-spark-{os.getpid()}.properties")
#: Of the cluster that was made last: tests have one at a time.
_authority = ""


class SecuredCluster(LocalCluster):
    """A cluster at which every user authenticates; or, where a test says itself how it is secured, as it says."""

    def __init__(self, nodes: int = 3, **options: Any) -> None:
        self._places = ReservedPorts(0 if options.get("tls") else nodes)
        if not options.get("tls"):
            options["settings"] = {
                **(options.get("settings") or {}),
                "authorization": True,
                "super_users": "User:admin",
            }
            options["tls"] = True
            options["node_settings"] = {
                node: {"password_listen": f"127.0.0.1:{port}"} for node, port in enumerate(self._places.ports, start=1)
            }
        super().__init__(nodes=nodes, **options)

    def up(self, *arguments: Any, **options: Any) -> None:
        """Starts it, and lets in its users."""
        global _authority  # noqa: PLW0603  # functions that make clients for tests have no cluster
        super().up(*arguments, **options)
        if self._places.ports:
            self._let_in()
        else:
            # The test says itself how it is reached: nothing is said beside that.
            _authority = ""
            _FILE.write_text("")

    def _let_in(self) -> None:
        global _authority  # noqa: PLW0603  # functions that make clients for tests have no cluster
        _authority = self.client_tls["ssl_ca_location"]
        with _FORMER["Admin"](bootstrap_servers=LocalCluster.bootstrap_servers.fget(self), **self.client_tls) as admin:  # type: ignore[attr-defined]
            admin.alter_user_scram_credentials(
                UserScramCredentialUpsertion(user, _PASSWORD.format(user)) for user in (_TESTER, _SPARK)
            )
            own = [(kind, ACLOperation.ALL) for kind in ResourceType if kind.name != "ANY"]
            admin.create_acls(
                ACL(f"User:{user}", operation, ACLPermissionType.ALLOW, _everything(kind))
                for user, rights in ((_TESTER, own), (_SPARK, _SPARKS_RIGHTS))
                for kind, operation in rights
            )
        # How commands get it, and jobs that are submitted.
        _FILE.write_text("".join(f"{name}={value}\n" for name, value in _properties(_SPARK).items()))

    @property
    def bootstrap_servers(self) -> str:
        """The addresses at which clients authenticate."""
        if not self._places.ports:
            return LocalCluster.bootstrap_servers.fget(self)  # type: ignore[attr-defined,no-any-return]
        return ",".join(f"127.0.0.1:{port}" for port in self._places.ports)

    def shutdown(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stops every node."""
        super().shutdown(timeout_s)
        self._places.close()


def _everything(kind: ResourceType) -> ResourcePattern:
    return ResourcePattern(kind, "kafka-cluster" if kind is ResourceType.CLUSTER else "*")


def _properties(user: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": _authority,
        "sasl.username": user,
        "sasl.password": _PASSWORD.format(user),
    }


def more_sql_options() -> str:
    """Returns the SQL options beside the addresses; empty without a secured cluster."""
    return "".join(f", quorumlog.{name} '{value}'" for name, value in _properties(_SPARK).items()) if _authority else ""


_FORMER: dict[str, Any] = {"Admin": Admin}


def _signed_in(name: str) -> type:
    """A client that authenticates, unless it says how it reaches nodes."""
    former = _FORMER[name] = getattr(quorumlog.sdk, name)

    def __init__(self: object, *topics: object, **options: object) -> None:
        own = {
            "security_protocol": "SASL_SSL",
            "ssl_ca_location": _authority,
            "sasl_plain_username": _TESTER,
            "sasl_plain_password": _PASSWORD.format(_TESTER),
        }
        says_itself = "security_protocol" in options or not _authority
        former.__init__(self, *topics, **({} if says_itself else own), **options)

    return type(name, (former,), {"__init__": __init__})


def secure_everything() -> None:
    """Has all tests of this process use secured clusters. To be called before they are imported."""
    _FILE.touch(0o600)
    atexit.register(_FILE.unlink, missing_ok=True)
    os.environ["QUORUMLOG_COMMAND_CONFIG"] = str(_FILE)
    quorumlog.local.LocalCluster = SecuredCluster  # type: ignore[misc]
    for name in ("Admin", "Producer", "Consumer"):
        setattr(quorumlog.sdk, name, _signed_in(name))
    for kind in _READERS:
        _sign_in_with(kind)


def _sign_in_with(kind: Any) -> None:
    former = kind.format

    def format(self: Any, source: str) -> Any:  # Spark's name
        made = former(self, source)
        if source == "quorumlog" and _authority:
            made = made.options(**{f"quorumlog.{name}": value for name, value in _properties(_SPARK).items()})
        return made

    kind.format = format
