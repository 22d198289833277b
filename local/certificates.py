"""Certificates of a local cluster: two authorities, one certificate for each node, and those of users."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from quorumlog.server.certificates.pairs import Pair, read_pair
from quorumlog.server.config.options import PairFiles

if TYPE_CHECKING:
    from quorumlog.server.certificates.issuing import Issued

#: The user of the cluster's own requests.
ADMIN = "admin"
_HOSTS = ("127.0.0.1", "localhost")


class LocalCertificates:
    """Files in one folder, with the same names as those of ``quorumlog certs``.

    Arguments:
        folder: created if it is missing.
        hosts: names and addresses by which clients reach nodes, beside those of this machine.
    """

    def __init__(self, folder: Path, hosts: Iterable[str] = ()) -> None:
        self.folder = folder
        self._hosts = (*_HOSTS, *hosts)
        #: For ``--command-config``: the options of ``admin``.
        self.properties = folder / "client.properties"
        self.node_ca, self.client_ca = folder / "node-ca.crt", folder / "client-ca.crt"

    def make(self, nodes: Iterable[int]) -> None:
        """Creates what is missing: the authorities, certificates of these nodes, and that of ``admin``.

        Raises:
            CertificateError: the extra ``certs`` is not installed, or the files cannot be written.
        """
        from quorumlog.server.certificates.issuing import create_authority, create_client, create_node

        for name in ("node-ca", "client-ca"):
            if not (self.folder / f"{name}.crt").exists():
                create_authority(self.folder, name)
        for node in nodes:
            if not (self.folder / f"node-{node}.crt").exists():
                create_node(self.folder, self._authority("node-ca"), node, self._hosts)
        if not (self.folder / f"{ADMIN}.crt").exists():
            create_client(self.folder, self._authority("client-ca"), ADMIN)
        lines = (f"{name.replace('_', '.')}={value}\n" for name, value in self.of_client(ADMIN).items())
        self.properties.write_text("".join(lines), "utf-8")

    def add_user(self, user: str) -> dict[str, str]:
        """Creates the certificate of a user; returns the options with which that user's clients connect."""
        from quorumlog.server.certificates.issuing import create_client

        create_client(self.folder, self._authority("client-ca"), user)
        return self.of_client(user)

    def of_node(self, node: int | str) -> dict[str, str]:
        """Returns the TLS settings of a node, or with the mark of workers for its id of each of them."""
        return {
            "tls_certificate": str(self.folder / f"node-{node}.crt"),
            "tls_key": str(self.folder / f"node-{node}.key"),
            "node_ca": str(self.node_ca),
            "client_ca": str(self.client_ca),
        }

    def of_client(self, user: str) -> dict[str, str]:
        """Returns client options, for producers, consumers and admins."""
        return {
            "security_protocol": "SSL",
            "ssl_ca_location": str(self.node_ca),
            "ssl_certificate_location": str(self.folder / f"{user}.crt"),
            "ssl_key_location": str(self.folder / f"{user}.key"),
        }

    def pair(self, user: str) -> Pair:
        """Returns a user's certificate and key, with the authorities of nodes."""
        return read_pair(PairFiles(self.folder / f"{user}.crt", self.folder / f"{user}.key", self.node_ca))

    def _authority(self, name: str) -> Issued:
        from quorumlog.server.certificates.issuing import Issued

        return Issued(self.folder / f"{name}.crt", self.folder / f"{name}.key")
