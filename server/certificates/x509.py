"""Reads certificates in PEM: their validity, and their serial numbers.

gRPC checks the validity only in the handshake. A stream may outlive it, so code that serves one must check the end.

The library ``cryptography`` is imported when the first certificate is read: it takes 8 MiB, and a node without TLS
reads none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"


class CertificateError(Exception):
    """Raised if a certificate, a key or a file of them cannot be used. The message is one line that says what to do."""


class Validity(NamedTuple):
    """Seconds since 1970, both ends included."""

    begins_s: int
    ends_s: int


def validity(pem: bytes) -> Validity:
    """Returns when the first certificate of a PEM text is valid.

    Raises:
        CertificateError: the text has no certificate, or one that is damaged.
    """
    first = _load(pem)[0]
    return Validity(int(first.not_valid_before_utc.timestamp()), int(first.not_valid_after_utc.timestamp()))


def serial_number(pem: bytes) -> str:
    """Returns the serial number of the first certificate of a PEM text, in hexadecimal digits.

    Raises:
        CertificateError: the text has no certificate, or one that is damaged.
    """
    return f"{_load(pem)[0].serial_number:x}"


def check_certificates(pem: bytes) -> None:
    """Checks that every certificate of a PEM text is whole.

    Raises:
        CertificateError: the text has no certificate, or one of them is cut short or damaged.
    """
    if not len(_load(pem)) == pem.count(_BEGIN) == pem.count(_END):
        raise CertificateError("one of its certificates is incomplete")


def _load(pem: bytes) -> list[Certificate]:
    """Returns the complete certificates, at least one."""
    from cryptography import x509

    if _BEGIN not in pem:
        raise CertificateError("it has no certificate: expected PEM (-----BEGIN CERTIFICATE-----)")
    try:
        return x509.load_pem_x509_certificates(pem)
    except (ValueError, x509.InvalidVersion):
        raise CertificateError("its certificate is damaged") from None
