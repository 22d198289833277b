"""Inspection of certificates: their content, and what is wrong with them."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from quorumlog.server.certificates.names import node_host, node_of, user_of
from quorumlog.server.certificates.x509 import CertificateError

#: A certificate that expires within this number of days should be replaced.
SOON_DAYS = 30


@dataclass(slots=True, frozen=True)
class CertificateView:
    """Content of a certificate.

    Arguments:
        kind: authority, node, user or other.
        node_id, user: the subject that it identifies.
        names: hosts and addresses that it is valid for.
        serial: in hexadecimal digits.
    """

    kind: str
    subject: str
    issuer: str
    serial: str
    begins: datetime
    ends: datetime
    node_id: int | None
    user: str | None
    names: tuple[str, ...]

    @property
    def days_left(self) -> int:
        """Days until it expires, rounded down; negative after that."""
        return (self.ends - datetime.now(UTC)).days


def view_of(path: Path) -> CertificateView:
    """Returns the content of the first certificate in a file.

    Raises:
        CertificateError: the file has none, or it cannot be read.
    """
    return _view(_load(path))


def views_of(path: Path) -> list[CertificateView]:
    """Returns the content of each certificate in a file, which may have several of authorities.

    Raises:
        CertificateError: the file has none, or one cannot be read.
    """
    return [_view(certificate) for certificate in _load_all(path)]


def _view(certificate: x509.Certificate) -> CertificateView:
    uris, names = _alternative_names(certificate)
    nodes = [node for uri in uris if (node := node_of(uri)) is not None]
    users = [user for uri in uris if (user := user_of(uri)) is not None]
    kind = "authority" if _is_authority(certificate) else "node" if nodes else "user" if users else "other"
    return CertificateView(
        kind,
        certificate.subject.rfc4514_string(),
        certificate.issuer.rfc4514_string(),
        f"{certificate.serial_number:x}",
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
        nodes[0] if nodes else None,
        users[0] if users else None,
        names,
    )


def problems_of(path: Path, key: Path | None, authority: Path | None) -> Iterator[str]:
    """Yields what is wrong with a certificate, one line for each problem.

    Arguments:
        key: its key, to be checked, too.
        authority: by which it should have been signed; if the file has several, by one of them.

    Raises:
        CertificateError: a file cannot be read.
    """
    certificate, view = _load(path), view_of(path)
    now = datetime.now(UTC)
    if now > view.ends:
        yield f"{path} expired on {view.ends:%Y-%m-%d}: make a new one"
    elif now < view.begins:
        yield f"{path} is valid from {view.begins:%Y-%m-%d} on: check the clock"
    elif view.days_left < SOON_DAYS:
        yield f"{path} expires in {view.days_left} days: make a new one soon"
    if view.kind == "node" and view.node_id is not None and node_host(view.node_id) not in view.names:
        yield f"{path} is not valid for {node_host(view.node_id)}, by which other nodes address it: make a new one"
    if view.kind == "other":
        yield f"{path} names neither a node nor a user: its common name will be used as a user's"
    if key is not None:
        yield from _problems_of_key(certificate, path, key)
    if authority is not None and not any(_has_signed(signer, certificate) for signer in _load_all(authority)):
        yield f"{path} was not signed by {authority}"


def _problems_of_key(certificate: x509.Certificate, path: Path, key: Path) -> Iterator[str]:
    try:
        loaded = serialization.load_pem_private_key(key.read_bytes(), None)
        mode = key.stat().st_mode
    except OSError as error:
        raise CertificateError(f"cannot read {key}: {error.strerror}") from None
    except (ValueError, TypeError):
        raise CertificateError(f"{key} is not a PEM key without a password") from None
    if loaded.public_key() != certificate.public_key():
        yield f"{key} is not the key of {path}"
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield f"{key} is readable by users other than its owner: chmod 600 {key}"


def _has_signed(signer: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(signer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _load(path: Path) -> x509.Certificate:
    return _load_all(path)[0]


def _load_all(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise CertificateError(f"cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise CertificateError(f"{path} has no certificate in PEM") from None


def _alternative_names(certificate: x509.Certificate) -> tuple[list[str], tuple[str, ...]]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return [], ()
    hosts = names.get_values_for_type(x509.DNSName)
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return names.get_values_for_type(x509.UniformResourceIdentifier), (*hosts, *addresses)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False
