"""Issues certificate authorities, and certificates of nodes and of users. Keys are P-256, readable by their owner."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from quorumlog.server.certificates.names import NODE_DOMAIN, USER_NAME, node_host, node_uri, user_uri
from quorumlog.server.certificates.x509 import CertificateError

#: Validity of authorities and of certificates, in days. (Browsers do not accept more than 398.)
AUTHORITY_DAYS = 3_650
CERTIFICATE_DAYS = 398
#: Clocks of machines differ: a new certificate must be valid on all of them.
_BACKDATED = timedelta(minutes=5)
_OWNERS_ALONE, _EVERYBODYS = 0o600, 0o644


class Issued(NamedTuple):
    """Paths of a certificate and its key."""

    certificate: Path
    key: Path


def create_authority(directory: Path, name: str, days: float = AUTHORITY_DAYS) -> Issued:
    """Creates a certificate authority: ``NAME.crt`` and ``NAME.key``.

    Arguments:
        directory: created if it does not exist.

    Raises:
        CertificateError: a file exists already, or cannot be written.
    """
    files = _free(directory, name)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"quorumlog {name}")])
    built = (
        _builder(subject, subject, key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _write(files, built, key)


def create_node(
    directory: Path, authority: Issued, node_id: int, hosts: Sequence[str], days: float = CERTIFICATE_DAYS
) -> Issued:
    """Creates the certificate of a node: ``node-N.crt`` and ``node-N.key``, used to serve and to connect.

    Arguments:
        hosts: names and addresses by which clients reach the node.

    Raises:
        CertificateError: as for an authority; or a host is neither a name nor an address, or has the name of a node.
    """
    names: list[x509.GeneralName] = [
        x509.UniformResourceIdentifier(node_uri(node_id)),
        x509.DNSName(node_host(node_id)),
        *(_host_name(host) for host in dict.fromkeys(hosts)),
    ]
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    return _create(directory, authority, f"node-{node_id}", f"node-{node_id}", names, usages, days)


def create_client(directory: Path, authority: Issued, user: str, days: float = CERTIFICATE_DAYS) -> Issued:
    """Creates the certificate of a user: ``USER.crt`` and ``USER.key``.

    Raises:
        CertificateError: as for an authority; or it is not a valid name of a user.
    """
    if not USER_NAME.fullmatch(user) or user in (".", ".."):
        raise CertificateError(f"'{user}' is not a valid user name: use letters, digits and . _ @ + -, at most 249")
    names = [x509.UniformResourceIdentifier(user_uri(user))]
    return _create(directory, authority, user, user, names, [ExtendedKeyUsageOID.CLIENT_AUTH], days)


def _create(
    directory: Path,
    authority: Issued,
    file_name: str,
    common_name: str,
    names: Sequence[x509.GeneralName],
    usages: Sequence[x509.ObjectIdentifier],
    days: float,
) -> Issued:
    files = _free(directory, file_name)
    issuer, issuer_key = _load(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    # A common name has at most 64 characters; the URI has the whole name.
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])
    built = (
        _builder(subject, issuer.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return _write(files, built, key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    labels = host.split(".")
    if len(host) > 253 or not all(
        0 < len(each) <= 63 and each.isascii() and each.replace("-", "").isalnum() for each in labels
    ):
        raise CertificateError(f"'{host}' is neither the name of a host nor an address")
    if f".{host.lower()}".endswith(f".{NODE_DOMAIN}"):
        # With another node's name, this node could impersonate that one.
        raise CertificateError(
            f"'{host}' is the name of a node, not of a host: names in {NODE_DOMAIN} are added automatically"
        )
    return x509.DNSName(host)


def _load(authority: Issued) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
        key = serialization.load_pem_private_key(authority.key.read_bytes(), None)
    except OSError as error:
        raise CertificateError(
            f"cannot read {error.filename}: {error.strerror}; create an authority with quorumlog certs create-ca"
        ) from None
    except (ValueError, TypeError):
        raise CertificateError(f"{authority.certificate} and {authority.key} are not an authority in PEM") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise CertificateError(f"{authority.key} is not the key of {authority.certificate}")
    return certificate, key


def _free(directory: Path, name: str) -> Issued:
    files = Issued(directory / f"{name}.crt", directory / f"{name}.key")
    for path in files:
        if path.exists() or path.is_symlink():
            raise CertificateError(f"{path} exists already and is not overwritten: remove it, or choose another --dir")
    return files


def _write(files: Issued, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Issued:
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        files.key.parent.mkdir(parents=True, exist_ok=True)
        _write_new(files.key, secret, _OWNERS_ALONE)
        _write_new(files.certificate, certificate.public_bytes(serialization.Encoding.PEM), _EVERYBODYS)
    except OSError as error:
        raise CertificateError(f"cannot write {error.filename}: {error.strerror}") from None
    return files


def _write_new(path: Path, content: bytes, mode: int) -> None:
    # Never overwrite a file, nor follow a link that another user may have placed.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
