"""``quorumlog quotas``: rate limits of users."""

from __future__ import annotations

from typing import Annotated

import typer

from quorumlog.cli.boundary import WRONG_USAGE, CommandError
from quorumlog.cli.confirmation import confirm
from quorumlog.cli.options import DEFAULT_BOOTSTRAP_SERVERS, BootstrapServers, Output, OutputFormat, connect
from quorumlog.cli.rendering import plural, print_json, print_table
from quorumlog.cli.suggestions import did_you_mean

app = typer.Typer()

#: Kafka's names of the quotas, in the order of display.
_KEYS = ("producer_byte_rate", "consumer_byte_rate", "request_rate", "controller_mutation_rate")

Principal = Annotated[
    str, typer.Argument(metavar="PRINCIPAL", help="Principal, User:NAME; 'User:*' is the default for all other users.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; required without a terminal.")]


@app.callback()
def quotas() -> None:
    """Rate limits (quotas) of users."""


@app.command("set", epilog="Example: quorumlog quotas set User:alice --producer-byte-rate 1000000")
def set_quotas(
    principal: Principal,
    *,
    producer_byte_rate: Annotated[
        float | None, typer.Option("--producer-byte-rate", help="Bytes that a node accepts per second.")
    ] = None,
    consumer_byte_rate: Annotated[
        float | None, typer.Option("--consumer-byte-rate", help="Bytes that a node sends per second.")
    ] = None,
    request_rate: Annotated[
        float | None, typer.Option("--request-rate", help="Requests that a node serves per second.")
    ] = None,
    controller_mutation_rate: Annotated[
        float | None,
        typer.Option("--controller-mutation-rate", help="Partitions that are created and deleted per second."),
    ] = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Sets quotas of a user, effective immediately. Quotas that are not named are unchanged."""
    rates = (producer_byte_rate, consumer_byte_rate, request_rate, controller_mutation_rate)
    values = {key: value for key, value in zip(_KEYS, rates, strict=True) if value is not None}
    if not values:
        raise CommandError("no quota given: add --producer-byte-rate or another one", WRONG_USAGE)
    with connect(bootstrap_servers) as admin:
        admin.alter_client_quotas({principal: values})
        found = admin.describe_client_quotas([principal])
    if output is OutputFormat.JSON:
        print_json(_plain(found))
    else:
        print(f"{principal}: {', '.join(f'{key}={_shown(value)}' for key, value in values.items())}")


@app.command("list", epilog="Example: quorumlog quotas list")
def list_quotas(
    principals: Annotated[
        list[str] | None, typer.Argument(metavar="[PRINCIPAL...]", help="Principals to list; by default all.")
    ] = None,
    *,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Lists quotas by user. The default, User:*, applies to users without a value of their own."""
    with connect(bootstrap_servers) as admin:
        found = admin.describe_client_quotas(principals or None)
    if output is OutputFormat.JSON:
        print_json(_plain(found))
    elif found:
        rows = ((who, *(_shown(values.get(key)) for key in _KEYS)) for who, values in found.items())
        print_table(("PRINCIPAL", *(key.replace("_", " ").upper() for key in _KEYS)), rows)
    else:
        print("No quotas exist.")


@app.command("delete", epilog="Example: quorumlog quotas delete User:alice --yes")
def delete(
    principal: Principal,
    *,
    quota: Annotated[
        list[str] | None,
        typer.Option("--quota", help=f"Quota to delete, such as {_KEYS[0]}; repeatable; by default all."),
    ] = None,
    yes: Yes = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Deletes quotas of a user: all of them, or the named ones. The default applies from then on."""
    for key in quota or ():
        if key not in _KEYS:
            hint = did_you_mean(key, _KEYS, f"choose from {', '.join(_KEYS)}")
            raise CommandError(f"--quota: quota {key!r:.60} does not exist: {hint}", WRONG_USAGE)
    with connect(bootstrap_servers) as admin:
        everything = admin.describe_client_quotas()
        known = everything.get(principal, {})
        wanted = list(dict.fromkeys(quota or known))
        missing = [key for key in wanted if key not in known]
        if missing or not known:
            what = missing[0] if missing and known else "quota"
            candidates = known if known else everything
            hint = did_you_mean(missing[0] if known else principal, candidates, "'quorumlog quotas list' shows all")
            raise CommandError(f"{principal} has no {what}: {hint}")
        confirm(f"Delete {plural(len(wanted), 'quota')} of {principal}: {', '.join(wanted)}?", yes=yes)
        admin.alter_client_quotas({principal: dict.fromkeys(wanted)})
    if output is OutputFormat.JSON:
        print_json([{"principal": principal, "quota": key, "result": "deleted"} for key in wanted])
    else:
        print(f"Deleted of {principal}: {', '.join(wanted)}.")


def _plain(found: dict[str, dict[str, float]]) -> list[dict[str, object]]:
    return [{"principal": principal, **values} for principal, values in found.items()]


def _shown(value: float | None) -> str:
    return "" if value is None else f"{value:,.16g}"
