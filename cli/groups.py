"""``quorumlog groups``: consumer groups, their members and their progress."""

from __future__ import annotations

from typing import Annotated

import typer

from quorumlog.cli import group_offsets, group_views
from quorumlog.cli.boundary import WRONG_USAGE, CommandError
from quorumlog.cli.confirmation import confirm
from quorumlog.cli.options import DEFAULT_BOOTSTRAP_SERVERS, BootstrapServers, Output, OutputFormat, connect
from quorumlog.cli.rendering import plural, print_json, print_table

app = typer.Typer()


@app.callback()
def groups() -> None:
    """Consumer groups."""


@app.command("list", epilog="Example: quorumlog groups list --state stable")
def list_groups(
    *,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="STATE[,…]",
            help="States to list: Empty, Assigning, Reconciling, Stable; for classic groups also PreparingRebalance,"
            " CompletingRebalance.",
        ),
    ] = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Lists all groups with their states. A group exists as long as it has members or committed offsets."""
    with connect(bootstrap_servers) as admin:
        listed = admin.list_groups(None if state is None else [name.strip() for name in state.split(",")])
    rows = [
        {
            "group": group.group_id,
            "kind": group.kind.value,
            "state": group.state.value,
            "members": group.members,
        }
        for group in listed
    ]
    if output is OutputFormat.JSON:
        print_json(rows)
    elif rows:
        print_table(("GROUP", "KIND", "STATE", "#MEMBERS"), (list(row.values()) for row in rows))
    else:
        print("No groups exist." if state is None else f"No group is {state}.")


@app.command("delete", epilog="Example: quorumlog groups delete billing --yes")
def delete(
    names: Annotated[list[str], typer.Argument(metavar="GROUP…", help="Names of the groups.")],
    *,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; required without a terminal.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Deletes groups without members, including their committed offsets.

    A consumer that joins again starts where its auto_offset_reset says.
    """
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CommandError(f"group {twice} is named twice; name it once", WRONG_USAGE)
    with connect(bootstrap_servers) as admin:
        described = admin.describe_groups(names, include_offsets=True)
        for group in described:
            group_offsets.check_without_members(group)
        committed = {group.group_id: len(group.offsets or {}) for group in described}
        if not dry_run:
            confirm(f"Permanently delete {', '.join(names)} with all committed offsets?", yes=yes)
            admin.delete_groups(names)
    if output is OutputFormat.JSON:
        print_json([{"group": name, "offsets": committed[name], "deleted": not dry_run} for name in names])
        return
    for name in names:
        done = "Would delete" if dry_run else "Deleted"
        print(f"{done} group {name}: {plural(committed[name], 'committed offset')}.")


app.command("describe", epilog=group_views.EXAMPLE)(group_views.describe)
app.command("reset-offsets", epilog=group_offsets.RESET_EXAMPLE)(group_offsets.reset_offsets)
app.command("delete-offsets", epilog=group_offsets.DELETE_EXAMPLE)(group_offsets.delete_offsets)
