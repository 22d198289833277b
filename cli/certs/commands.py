"""``quorumlog certs``: creates and inspects certificate authorities and certificates of nodes and users."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli.boundary import CommandError
from quorumlog.cli.certs import revocations
from quorumlog.cli.options import Output, OutputFormat, directory_path, file_path
from quorumlog.cli.rendering import print_json, print_table

if TYPE_CHECKING:
    from quorumlog.server.certificates.inspection import CertificateView
    from quorumlog.server.certificates.issuing import Issued

app = typer.Typer()

DEFAULT_DIRECTORY = Path("quorumlog-certs")
_NODE_AUTHORITY, _CLIENT_AUTHORITY = "node-ca", "client-ca"

Directory = Annotated[
    Path, typer.Option("--dir", metavar="DIR", parser=directory_path, help="Directory of authorities and certificates.")
]
Days = Annotated[int, typer.Option("--days", min=1, max=36_500, help="Validity in days.")]
CertificateFile = Annotated[Path, typer.Argument(metavar="FILE", parser=file_path, help="Certificate in PEM format.")]


@app.command("create-ca", epilog="Example: quorumlog certs create-ca --dir quorumlog-certs")
def create_ca(
    *, directory: Directory = DEFAULT_DIRECTORY, days: Days = 3_650, output: Output = OutputFormat.TABLE
) -> None:
    """Creates the cluster's two authorities: one for nodes, one for clients, so that no client can act as a node.

    Keep their keys where no node runs. Nodes need only node-ca.crt and client-ca.crt.
    """
    from quorumlog.server.certificates.issuing import create_authority

    made = [create_authority(directory, name, days) for name in (_NODE_AUTHORITY, _CLIENT_AUTHORITY)]
    _print_made(made, output)


@app.command("create-node", epilog="Example: quorumlog certs create-node 1 --host 10.0.0.1 --host log-1.example.net")
def create_node(
    node_id: Annotated[int, typer.Argument(metavar="NODE_ID", min=0, max=2**31 - 1, help="Id of the node.")],
    *,
    hosts: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="HOST", help="Name or address by which clients reach the node; repeatable."),
    ] = None,
    directory: Directory = DEFAULT_DIRECTORY,
    days: Days = 398,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Creates the certificate of a node. Other nodes check the id in it, clients the hosts."""
    from quorumlog.server.certificates.issuing import create_node as create

    _print_made([create(directory, _authority(directory, _NODE_AUTHORITY), node_id, hosts or [], days)], output)


@app.command("create-client", epilog="Example: quorumlog certs create-client alice")
def create_client(
    user: Annotated[str, typer.Argument(metavar="USER", help="Name of the user; its principal in ACLs is User:USER.")],
    *,
    directory: Directory = DEFAULT_DIRECTORY,
    days: Days = 398,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Creates the certificate of a user, for clients and for this command line."""
    from quorumlog.server.certificates.issuing import create_client as create

    _print_made([create(directory, _authority(directory, _CLIENT_AUTHORITY), user, days)], output)


@app.command("show", epilog="Example: quorumlog certs show quorumlog-certs/node-1.crt")
def show(certificate: CertificateFile, *, output: Output = OutputFormat.TABLE) -> None:
    """Shows the owner, names and validity of each certificate in a file."""
    from quorumlog.server.certificates.inspection import views_of

    views = views_of(certificate)
    if output is OutputFormat.JSON:
        print_json([_as_json(view) for view in views])
        return
    print_table(
        ("Owner", "Names", "Issuer", "Serial", "From", "Until", "Days"),
        [
            (
                _whose(view),
                ",".join(view.names) or "-",
                view.issuer,
                view.serial,
                f"{view.begins:%Y-%m-%d}",
                f"{view.ends:%Y-%m-%d}",
                view.days_left,
            )
            for view in views
        ],
    )


@app.command("check", epilog="Example: quorumlog certs check node-1.crt --key node-1.key --ca node-ca.crt")
def check(
    certificate: CertificateFile,
    *,
    key: Annotated[
        Path | None,
        typer.Option("--key", metavar="FILE", parser=file_path, help="Private key that should match the certificate."),
    ] = None,
    authority: Annotated[
        Path | None,
        typer.Option("--ca", metavar="FILE", parser=file_path, help="Authority that should have signed it."),
    ] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Checks a certificate's validity, names, key and authority, and prints every problem. Exits with 1 if there is
    one.
    """
    from quorumlog.server.certificates.inspection import problems_of, view_of

    view, problems = view_of(certificate), list(problems_of(certificate, key, authority))
    if problems:
        raise CommandError("; ".join(problems))
    if output is OutputFormat.JSON:
        print_json(_as_json(view))
    else:
        print(f"{certificate} is valid for another {view.days_left} days.")


app.command("revoke", epilog=revocations.REVOKE_EXAMPLE)(revocations.revoke)
app.command("restore", epilog=revocations.RESTORE_EXAMPLE)(revocations.restore)
app.command("revocations", epilog=revocations.REVOCATIONS_EXAMPLE)(revocations.revocations)


def _authority(directory: Path, name: str) -> Issued:
    from quorumlog.server.certificates.issuing import Issued

    return Issued(directory / f"{name}.crt", directory / f"{name}.key")


def _print_made(made: list[Issued], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json([{"certificate": str(each.certificate), "key": str(each.key)} for each in made])
        return
    for each in made:
        print(f"Created {each.certificate} and {each.key}.")


def _whose(view: CertificateView) -> str:
    match view.kind:
        case "node":
            return f"node {view.node_id}"
        case "user":
            return f"User:{view.user}"
        case other:
            return other


def _as_json(view: CertificateView) -> dict[str, object]:
    return {
        "kind": view.kind,
        "node_id": view.node_id,
        "user": view.user,
        "names": list(view.names),
        "subject": view.subject,
        "issuer": view.issuer,
        "serial": view.serial,
        "begins": view.begins.isoformat(),
        "ends": view.ends.isoformat(),
        "days_left": view.days_left,
    }
