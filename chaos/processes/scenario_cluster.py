"""The cluster of a scenario: plain, or secured as a cluster for many users is, with all that its clients need for that.

Secured, nodes and the operator have certificates, everybody else signs in by password, and may do what rules allow.
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

#: Where proxies stand in front of secured nodes, at the ports of these: certificates are good for it, too.
PROXIED_HOST = "127.0.0.2"
_HOST = "127.0.0.1"
#: No secret: it is good for a cluster that lasts for one scenario. So it may be on the command line of its processes.
_USER, _PASSWORD = "worker", "a password of the scenario's workers"
_SETTINGS = {"authorization": "true", "super_users": "User:admin"}
_ALLOWED = (
    (ResourceType.TOPIC, ACLOperation.READ),
    (ResourceType.TOPIC, ACLOperation.WRITE),
    (ResourceType.GROUP, ACLOperation.READ),
    (ResourceType.PRODUCER_NAME, ACLOperation.WRITE),
)


class ClientOptions(SecurityOptions, total=False):
    """How clients reach a cluster, and who they are there."""

    bootstrap_servers: str


class ScenarioCluster(LocalCluster):
    """A cluster that knows how its clients reach it.

    Arguments:
        secure: with TLS, sign-in by password, and rules.
        kafka: its nodes speak Kafka's protocol too.
        advertise_host: where nodes are reached, if not where they listen; at the same ports.
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
        """Of the operator, who may do everything."""
        options = ClientOptions(bootstrap_servers=self.bootstrap_servers)
        options.update(self.client_tls)  # type: ignore[typeddict-item]  # options of clients, by name
        return options

    @property
    def client_options(self) -> ClientOptions:
        """Of whoever writes and reads."""
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
        """The same for librdkafka, by its names."""
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
        """All ports at which a secured node listens."""
        addresses = (self.address(node), self.peer_address(node))
        return [*(int(address.rpartition(":")[2]) for address in addresses), self._places[node]]

    def let_in(self, admin: Admin) -> None:
        """Makes the user as whom clients sign in, and the rules for it; nothing where nobody is asked."""
        if self.secure:
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion(_USER, _PASSWORD)])
            admin.create_acls(
                ACL(f"User:{_USER}", operation, ACLPermissionType.ALLOW, ResourcePattern(kind, "*"))
                for kind, operation in _ALLOWED
            )
