"""``quorumlog users``: users who authenticate by password. Passwords come from files, and never leave this process."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli.boundary import WRONG_USAGE, CommandError, os_problem
from quorumlog.cli.confirmation import confirm
from quorumlog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    Output,
    OutputFormat,
    connect,
    file_path,
)
from quorumlog.cli.rendering import plural, print_json, print_table
from quorumlog.cli.suggestions import did_you_mean

if TYPE_CHECKING:
    from quorumlog.sdk import Admin, UserScramCredential

app = typer.Typer()

#: Maximum size of a password file in bytes.
_MOST_BYTES = 8_192


class Mechanism(Enum):
    """A hash that passwords are stored with."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; required without a terminal.")]


@app.callback()
def users() -> None:
    """Users who authenticate by password."""


@app.command("create", epilog="Example: quorumlog users create alice --password-file alice.password")
def create(
    user: Annotated[str, typer.Argument(metavar="USER", help="Name of the user; its principal in ACLs is User:USER.")],
    *,
    password_file: Annotated[
        Path,
        typer.Option(
            "--password-file",
            metavar="FILE",
            parser=file_path,
            help="File with the password in its only line, readable by you alone.",
        ),
    ],
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Change the password of an existing user, which ends its sessions."),
    ] = False,
    mechanism: Annotated[
        Mechanism | None,
        typer.Option("--mechanism", help="Set the password for this mechanism only.  [default: for both]"),
    ] = None,
    super_user: Annotated[
        bool, typer.Option("--super-user", help="Allow setting a password for a super user.")
    ] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Creates a user. Nodes receive credentials derived from the password, not the password."""
    from quorumlog.sdk import UserScramCredentialUpsertion
    from quorumlog.sdk.runtime.passwords import new_password

    password = read_password(password_file)
    new_password(password)
    with connect(bootstrap_servers) as admin:
        found = admin.describe_user_scram_credentials([user])
        is_there = bool(found)
        has_it = mechanism is None or mechanism.value in {each.mechanism for each in found}
        if is_there and has_it and not replace:
            raise CommandError(f"user {user} exists already: add --replace to change its password")
        if replace and not is_there:
            hint = did_you_mean(user, _all_users(admin), "omit --replace")
            raise CommandError(f"user {user} does not exist: {hint}")
        change = UserScramCredentialUpsertion(
            user, password, for_super_user=super_user, mechanism=None if mechanism is None else mechanism.value
        )
        admin.alter_user_scram_credentials([change])
    if output is OutputFormat.JSON:
        print_json({"user": user, "result": "replaced" if is_there else "created"})
    else:
        print(f"Changed the password of user {user}." if is_there else f"Created user {user}.")


@app.command("list", epilog="Example: quorumlog users list")
def list_users(
    *, bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS, output: Output = OutputFormat.TABLE
) -> None:
    """Lists the users who can authenticate by password, and when each password was set."""
    with connect(bootstrap_servers) as admin:
        found = admin.describe_user_scram_credentials()
    if output is OutputFormat.JSON:
        print_json([_plain(each) for each in found])
    elif found:
        rows = (
            (each.user, each.mechanism, each.iterations, "yes" if each.for_super_user else "no", _time(each.changed_ms))
            for each in found
        )
        print_table(("USER", "MECHANISM", "ITERATIONS", "SUPER USER", "PASSWORD SINCE"), rows)
    else:
        print("No users with passwords exist.")


@app.command("delete", epilog="Example: quorumlog users delete alice --yes")
def delete(
    names: Annotated[list[str], typer.Argument(metavar="USER...", help="Names of the users.")],
    *,
    mechanism: Annotated[
        Mechanism | None,
        typer.Option(
            "--mechanism", help="Delete only the passwords for this mechanism, and users without another password."
        ),
    ] = None,
    yes: Yes = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Deletes users: all of them, or none if one does not exist. Their sessions end."""
    from quorumlog.sdk import UserScramCredentialDeletion

    wanted = list(dict.fromkeys(names))
    with connect(bootstrap_servers) as admin:
        every = admin.describe_user_scram_credentials(wanted)
        found = {each.user for each in every}
        missing = [name for name in wanted if name not in found]
        if missing:
            hint = did_you_mean(missing[0], _all_users(admin), "'quorumlog users list' shows all")
            raise CommandError(f"user {missing[0]} does not exist: {hint}")
        only = None if mechanism is None else mechanism.value
        without = [name for name in wanted if only not in (None, *(e.mechanism for e in every if e.user == name))]
        if without:
            raise CommandError(f"user {without[0]} has no password for {only}: 'quorumlog users list' shows all")
        what = plural(len(wanted), "user") if only is None else f"{plural(len(wanted), 'password')} for {only}"
        confirm(f"Delete {what}: {', '.join(wanted)}?", yes=yes)
        admin.alter_user_scram_credentials([UserScramCredentialDeletion(name, only) for name in wanted])
    if output is OutputFormat.JSON:
        print_json([{"user": name, "result": "deleted"} for name in wanted])
    else:
        for name in wanted:
            print(f"Deleted user {name}." if only is None else f"Deleted the password of user {name} for {only}.")


def read_password(file: Path) -> str:
    """Returns the password in the only line of a file.

    Raises:
        CommandError: the file cannot be read, others may read it, or it contains no password.
    """
    try:
        with file.open("rb") as opened:
            mode = file.stat().st_mode
            content = opened.read(_MOST_BYTES + 1)
    except OSError as error:
        raise CommandError(f"--password-file: cannot read {file}: {os_problem(error)}", WRONG_USAGE) from None
    if stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise CommandError(f"--password-file: {file} is readable by others: run chmod 600 {file}", WRONG_USAGE)
    try:
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        text = ""
    if not text or len(content) > _MOST_BYTES or "\n" in text:
        raise CommandError(f"--password-file: {file} does not hold a password in one line of text", WRONG_USAGE)
    return text


def _all_users(admin: Admin) -> list[str]:
    return [each.user for each in admin.describe_user_scram_credentials()]


def _plain(user: UserScramCredential) -> dict[str, object]:
    return {
        "user": user.user,
        "mechanism": user.mechanism,
        "iterations": user.iterations,
        "for_super_user": user.for_super_user,
        "changed_ms": user.changed_ms,
    }


def _time(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
