"""The cluster of a scenario: plain, or secured like a cluster for many users, with the options of its clients.

If secured, nodes and the operator have certificates; all other clients authenticate by password, and need ACLs.
"""

from __future__ import annotations

from collections.abc import Mapping

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
from quorumlog.sdk.runtime.security import SecurityOptions

#: Address of proxies in front of secured nodes, at the same ports: certificates are valid for it, too.
PROXIED_HOST = "127.0.0.2"
_HOST = "127.0.0.1"
#: Not a secret: it is valid for a cluster that exists for one scenario. So it may be on the command line of processes.
_USER, _PASSWORD = "worker", "a password of the scenario's workers"
_SETTINGS = {"authorization": "true", "super_users": "User:admin"}
_ALLOWED = (
    (ResourceType.TOPIC, ACLOperation.READ),
    (ResourceType.TOPIC, ACLOperation.WRITE),
    (ResourceType.GROUP, ACLOperation.READ),
    (ResourceType.PRODUCER_NAME, ACLOperation.WRITE),
)


class ClientOptions(SecurityOptions, total=False):
    """Connection settings and credentials of clients."""

    bootstrap_servers: str


class ScenarioCluster(LocalCluster):
    """A cluster with the options of its clients.

    Arguments:
        secure: use TLS, password authentication and ACLs.
        kafka: nodes serve Kafka clients too.
        advertise_host: host that nodes advertise, if it is not the listening one; at the same ports.
    """

    def __init__(
        self,
        nodes: int,
        *,
        secure: bool = False,
        kafka: bool = False,
        advertise: Mapping[int, str] | None = None,
        advertise_host: str | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self.secure = secure
        self.kafka = kafka
        self._told_host = advertise_host or _HOST
        self._password_ports = ReservedPorts(nodes if secure else 0)
        self._places = dict(enumerate(self._password_ports.ports, start=1))
        super().__init__(
            nodes=nodes,
            advertise=advertise,
            advertise_host=advertise_host,
            settings={**(settings or {}), **(_SETTINGS if secure else {})},
            node_settings={node: {"password_listen": f"{_HOST}:{port}"} for node, port in self._places.items()},
            tls=secure,
            kafka=kafka,
        )

    def shutdown(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stops every node."""
        super().shutdown(timeout_s)
        self._password_ports.close()

    @property
    def admin_options(self) -> ClientOptions:
        """Options of the operator, who may do everything."""
        options = ClientOptions(bootstrap_servers=self.bootstrap_servers)
        options.update(self.client_tls)  # type: ignore[typeddict-item]  # options of clients, by name
        return options

    @property
    def client_options(self) -> ClientOptions:
        """Options of writers and readers."""
        if not self.secure:
            return self.admin_options
        return ClientOptions(
            bootstrap_servers=",".join(f"{self._told_host}:{port}" for port in self._places.values()),
            security_protocol="SASL_SSL",
            ssl_ca_location=self.client_tls["ssl_ca_location"],
            sasl_plain_username=_USER,
            sasl_plain_password=_PASSWORD,
        )

    @property
    def kafka_options(self) -> dict[str, str]:
        """Options of writers and readers for librdkafka."""
        options = {"bootstrap.servers": self.kafka_bootstrap_servers}
        if self.secure:
            options |= {
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": self.client_tls["ssl_ca_location"],
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": _USER,
                "sasl.password": _PASSWORD,
            }
        return options

    def ports_of(self, node: int) -> list[int]:
        """Returns all ports on which a secured node listens."""
        addresses = (self.address(node), self.peer_address(node))
        return [*(int(address.rpartition(":")[2]) for address in addresses), self._places[node]]

    def let_in(self, admin: Admin) -> None:
        """Creates the user of the clients and its ACLs; does nothing without authentication."""
        if self.secure:
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion(_USER, _PASSWORD)])
            admin.create_acls(
                ACL(f"User:{_USER}", operation, ACLPermissionType.ALLOW, ResourcePattern(kind, "*"))
                for kind, operation in _ALLOWED
            )
