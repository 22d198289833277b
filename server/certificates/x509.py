"""From when until when a certificate is valid, and its serial number (RFC 5280, section 4.1.2).

gRPC looks at that in the handshake only. A stream outlives it, so whoever serves one must know when it has to end; and
reading two times out of a certificate is no reason to load a library.
"""

from __future__ import annotations

import binascii
from datetime import UTC, datetime
from typing import NamedTuple

_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
_INTEGER, _SEQUENCE, _UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x02, 0x30, 0x17, 0x18, 0xA0
_NONE = "there is no certificate in it: expected PEM, -----BEGIN CERTIFICATE----- and so on"
_DAMAGED = "the certificate in it is damaged"
#: Of two-digit years the RFC says: from 50 on they are of the twentieth century.
_CENTURY_TURNS = 50


class CertificateError(Exception):
    """A certificate, a key or a file of them cannot be used. The message is one line that says what to do."""


class Validity(NamedTuple):
    """Seconds since 1970, both ends included."""

    begins_s: int
    ends_s: int


def validity(pem: bytes) -> Validity:
    """When the first certificate of some PEM text is valid.

    Raises:
        CertificateError: there is none in it.
    """
    try:
        fields = _fields(pem)
        # Serial number, signature algorithm, issuer; then the validity.
        for _ in range(3):
            _, fields = _take(fields)
        times, _ = _take(fields, _SEQUENCE)
        begins, times = _time(times)
        return Validity(begins, _time(times)[0])
    except (ValueError, IndexError):
        raise CertificateError(_DAMAGED) from None


def certificates(pem: bytes) -> list[bytes]:
    """The certificates of some PEM text, one after the other.

    Raises:
        CertificateError: there is none in it, or one of them is not whole.
    """
    before, *others = pem.split(_BEGIN)
    found = [_BEGIN + each.partition(_END)[0] + _END for each in others if _END in each]
    if not found:
        raise CertificateError(_NONE)
    if _END in before or len(found) < len(others) or pem.count(_END) != len(found):
        raise CertificateError("one of the certificates in it is not whole")
    return found


def serial_number(pem: bytes) -> str:
    """The serial number of the first certificate of some PEM text, in hexadecimal digits.

    Raises:
        CertificateError: there is none in it.
    """
    try:
        serial, _ = _take(_fields(pem), _INTEGER)
        return f"{int.from_bytes(serial, 'big', signed=True):x}"
    except (ValueError, IndexError):
        raise CertificateError(_DAMAGED) from None


def _fields(pem: bytes) -> bytes:
    """The fields of a certificate from its serial number on."""
    _, begin, rest = pem.partition(_BEGIN)
    body, end, _ = rest.partition(_END)
    if not begin or not end:
        raise CertificateError(_NONE)
    der = binascii.a2b_base64(body)
    certificate, _ = _take(der, _SEQUENCE)
    fields, _ = _take(certificate, _SEQUENCE)
    if fields[0] == _VERSION:
        _, fields = _take(fields, _VERSION)
    return fields


def _take(data: bytes, kind: int | None = None) -> tuple[bytes, bytes]:
    """The content of the first value in some DER, and what comes after it."""
    if kind is not None and data[0] != kind:
        raise ValueError
    length, at = data[1], 2
    if length & 0x80:
        octets = length & 0x7F
        length, at = int.from_bytes(data[2 : 2 + octets], "big"), 2 + octets
    if at + length > len(data):
        raise ValueError
    return data[at : at + length], data[at + length :]


def _time(data: bytes) -> tuple[int, bytes]:
    text, rest = _take(data)
    digits = text.decode("ascii").removesuffix("Z")
    if data[0] == _UTC_TIME:
        digits = ("19" if int(digits[:2]) >= _CENTURY_TURNS else "20") + digits
    elif data[0] != _GENERALIZED_TIME:
        raise ValueError
    return int(datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()), rest
