"""``quorumlog certs revoke``, ``restore`` and ``revocations``: revoked certificates and users."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from quorumlog.cli.options import DEFAULT_BOOTSTRAP_SERVERS, BootstrapServers, Output, OutputFormat, connect
from quorumlog.cli.rendering import print_json, print_table

_SERIAL = re.compile(r"[0-9A-Fa-f]{1,40}")
_PRINCIPAL = "User:"

REVOKE_EXAMPLE = "Example: quorumlog certs revoke quorumlog-certs/alice.crt"
RESTORE_EXAMPLE = "Example: quorumlog certs restore User:alice"
REVOCATIONS_EXAMPLE = "Example: quorumlog certs revocations"

Subjects = Annotated[
    list[str],
    typer.Argument(
        metavar="SERIAL|FILE|User:NAME...",
        help="Serial number in hexadecimal, file with the certificate, or user.",
    ),
]


def revoke(
    subjects: Subjects,
    *,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Revokes client certificates, or all credentials of a user: certificates, passwords and tokens.

    Calls and streams authenticated with them end as soon as the nodes are notified. Node certificates cannot be
    revoked: remove the node instead.
    """
    serials, principals = _sorted_out(subjects)
    with connect(bootstrap_servers) as admin:
        admin.revoke(serials=serials, principals=principals)
    _print_done([*serials, *principals], "revoked", output)


def restore(
    subjects: Subjects,
    *,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Withdraws a revocation, for example of a certificate that has expired anyway."""
    serials, principals = _sorted_out(subjects)
    with connect(bootstrap_servers) as admin:
        admin.restore(serials=serials, principals=principals)
    _print_done([*serials, *principals], "restored", output)


def revocations(
    *, bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS, output: Output = OutputFormat.TABLE
) -> None:
    """Lists revoked certificates and users, and when each was revoked."""
    with connect(bootstrap_servers) as admin:
        found = admin.describe_revocations()
    if output is OutputFormat.JSON:
        print_json(
            [{"serial": each.serial, "principal": each.principal, "revoked_ms": each.revoked_ms} for each in found]
        )
    elif found:
        rows = ((each.serial or each.principal or "", _time(each.revoked_ms)) for each in found)
        print_table(("REVOKED", "SINCE"), rows)
    else:
        print("No certificate or user is revoked.")


def _sorted_out(subjects: list[str]) -> tuple[list[str], list[str]]:
    """Returns the serial numbers and the principals."""
    serials, principals = [], []
    for subject in dict.fromkeys(subjects):
        if subject.startswith(_PRINCIPAL):
            principals.append(subject)
        elif _SERIAL.fullmatch(subject):
            serials.append(subject.lower().lstrip("0") or "0")
        else:
            serials.append(_serial_in(Path(subject)))
    return list(dict.fromkeys(serials)), principals


def _serial_in(file: Path) -> str:
    from quorumlog.server.certificates.inspection import view_of

    return view_of(file).serial


def _print_done(subjects: list[str], result: str, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json([{"subject": each, "result": result} for each in subjects])
        return
    for each in subjects:
        print(f"{result.capitalize()} {each}.")


def _time(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
