"""``quorumlog producers``: lists and deletes the names under which producers resume after a restart."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli.boundary import WRONG_USAGE, CommandError
from quorumlog.cli.confirmation import confirm
from quorumlog.cli.options import DEFAULT_BOOTSTRAP_SERVERS, BootstrapServers, Output, OutputFormat, connect
from quorumlog.cli.rendering import plural, print_json, print_table
from quorumlog.cli.suggestions import did_you_mean
from quorumlog.cli.times import parse_time_ms

if TYPE_CHECKING:
    from quorumlog.sdk import Admin, ProducerListing

app = typer.Typer()

Prefix = Annotated[str, typer.Option("--prefix", metavar="TEXT", help="Select names with this prefix.")]
ClaimedBefore = Annotated[
    str | None,
    typer.Option(
        "--claimed-before",
        metavar="TIME",
        help="Select names last claimed before this time: 2024-05-01T12:00:00 (UTC), or milliseconds since 1970.",
    ),
]


@app.callback()
def producers() -> None:
    """Producer names."""


@app.command("list", epilog="Example: quorumlog producers list --prefix spark-")
def list_producers(
    *,
    prefix: Prefix = "",
    claimed_before: ClaimedBefore = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Lists claimed names, with the newest epoch and the time of the last claim by the controller's clock."""
    before_ms = _time_ms(claimed_before)
    with connect(bootstrap_servers) as admin:
        listed = _listed(admin, prefix, before_ms)
    if output is OutputFormat.JSON:
        print_json([each._asdict() for each in listed])
    elif listed:
        rows = ((each.name, str(each.producer_id), each.producer_epoch, _time(each.claimed_ms)) for each in listed)
        print_table(("NAME", "ID", "EPOCH", "CLAIMED"), rows)
    else:
        print("No producer name matches." if prefix or before_ms else "No producer names exist.")


@app.command(
    "delete", epilog="Example: quorumlog producers delete --prefix spark- --claimed-before 2024-05-01 --dry-run"
)
def delete(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME…", help="Names to delete.", show_default=False)
    ] = None,
    *,
    prefix: Prefix = "",
    claimed_before: ClaimedBefore = None,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; required without a terminal.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Deletes names that are no longer in use. A producer that still writes under a deleted name is rejected, and work
    that is repeated under it writes its records twice.
    """
    if bool(names) is bool(prefix):
        raise CommandError("give the names to delete, or --prefix TEXT for all that start with it", WRONG_USAGE)
    before_ms = _time_ms(claimed_before)
    with connect(bootstrap_servers) as admin:
        listed = _named(admin, names, before_ms) if names else _listed(admin, prefix, before_ms)
        chosen = [each.name for each in listed]
        if chosen and not dry_run:
            confirm(
                f"Permanently delete {_summary(chosen)}?"
                " Work that is repeated under a deleted name writes its records twice.",
                yes=yes,
            )
            # The user has not agreed to delete names that are claimed from now on.
            admin.delete_producers(chosen, claimed_before_ms=max(each.claimed_ms for each in listed) + 1)
    if output is OutputFormat.JSON:
        print_json([{"name": name, "deleted": not dry_run} for name in chosen])
        return
    for name in chosen:
        print(f"{'Would delete' if dry_run else 'Deleted'} producer name {name}.")
    if not chosen:
        print("No producer name matches.")


def _time_ms(claimed_before: str | None) -> int | None:
    return None if claimed_before is None else parse_time_ms(claimed_before, "--claimed-before")


def _listed(admin: Admin, prefix: str, before_ms: int | None) -> list[ProducerListing]:
    return [each for each in admin.list_producers(prefix) if before_ms is None or each.claimed_ms < before_ms]


def _named(admin: Admin, names: list[str], before_ms: int | None) -> list[ProducerListing]:
    known = {each.name: each for name in names for each in admin.list_producers(name)}
    for name in names:
        if name not in known:
            names_in_use = [each.name for each in admin.list_producers("")]
            hint = did_you_mean(name, names_in_use, "'quorumlog producers list' shows all")
            raise CommandError(f"producer name {name} does not exist: {hint}")
        if before_ms is not None and known[name].claimed_ms >= before_ms:
            raise CommandError(f"producer name {name} was claimed at {_time(known[name].claimed_ms)}: it is in use")
    return [known[name] for name in dict.fromkeys(names)]


def _summary(names: list[str]) -> str:
    return f"producer name {names[0]}" if len(names) == 1 else plural(len(names), "producer name")


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds") if milliseconds else "unknown"
