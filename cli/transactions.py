"""``quorumlog transactions``: lists and describes transactional ids, and aborts transactions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli.boundary import CommandError
from quorumlog.cli.confirmation import confirm
from quorumlog.cli.options import DEFAULT_BOOTSTRAP_SERVERS, BootstrapServers, Output, OutputFormat, connect
from quorumlog.cli.rendering import plural, print_json, print_table

if TYPE_CHECKING:
    from quorumlog.sdk import Admin, TopicPartition, TransactionDescription, TransactionListing

app = typer.Typer()

_LISTED = ("TRANSACTIONAL-ID", "PRODUCER", "EPOCH", "STATE", "OPEN-FOR")
_PARTICIPANTS = ("TRANSACTIONAL-ID", "PARTICIPANT", "OUTCOME", "HELD-BACK")
_Row = dict[str, object]


@app.callback()
def transactions() -> None:
    """Transactions of producers."""


@app.command("list", epilog="Example: quorumlog transactions list --longer-than 60")
def list_transactions(
    *,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="STATE[,…]",
            help="States to list: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort.",
        ),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="ID", min=0, help="Select this producer id; repeatable."),
    ] = None,
    longer_than: Annotated[
        float | None,
        typer.Option(
            "--longer-than", metavar="SECONDS", min=0, max=1e12, help="Select transactions that are open for longer."
        ),
    ] = None,
    pattern: Annotated[
        str, typer.Option("--pattern", metavar="REGEX", help="Select transactional ids that match as a whole (RE2).")
    ] = "",
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Lists transactional ids with their producers and states."""
    states = None if state is None else [name.strip() for name in state.split(",")]
    longer_than_ms = None if longer_than is None else int(longer_than * 1000)
    with connect(bootstrap_servers) as admin:
        listed = admin.list_transactions(
            states, producer_ids=producer_id, longer_than_ms=longer_than_ms, name_pattern=pattern
        )
    if output is OutputFormat.JSON:
        print_json([_listed_row(each) for each in listed])
    elif listed:
        rows = (
            (each.transactional_id, each.producer_id, each.producer_epoch, each.state.value, _age(each.started_ms))
            for each in listed
        )
        print_table(_LISTED, rows)
    else:
        is_filtered = states or producer_id or longer_than is not None or pattern
        print("No transactional id matches." if is_filtered else "No transactional ids exist.")


@app.command("describe", epilog="Example: quorumlog transactions describe billing")
def describe(
    names: Annotated[list[str], typer.Argument(metavar="ID…", help="Transactional ids.")],
    *,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Describes transactional ids with the participants of their transactions, and names those that are slow.

    OUTCOME is open, written or missing. HELD-BACK is the number of offsets that readers of committed records cannot
    read yet, because of this transaction or another one.
    """
    with connect(bootstrap_servers) as admin:
        described = admin.describe_transactions(names)
        held_back = _held_back(admin, described)
    rows = [row for each in described for row in _participant_rows(each, held_back)]
    if output is OutputFormat.JSON:
        print_json([_described_row(each, rows) for each in described])
        return
    for each in described:
        print(_summary(each))
    if rows:
        print_table(
            _PARTICIPANTS,
            (
                (row["transactional_id"], _participant(row), row["outcome"], _number(row["held_back"]))
                for row in rows
            ),
        )  # fmt: skip


@app.command("abort", epilog="Example: quorumlog transactions abort billing --yes")
def abort(
    name: Annotated[str, typer.Argument(metavar="ID", help="Transactional id.")],
    *,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; required without a terminal.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done, and change nothing.")] = False,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Aborts the open transaction of a transactional id, and fences its producer.

    A transaction that starts while you confirm is not aborted.
    """
    with connect(bootstrap_servers) as admin:
        (seen,) = admin.describe_transactions([name])
        if seen.place is None:
            raise CommandError(f"no transaction of {name} is open: it is {seen.state.value}")
        everywhere = False
        if not dry_run:
            parts = plural(len(seen.partitions) + len(seen.groups), "participant")
            confirm(f"Abort the transaction of {name} with {parts}? Its records are never read.", yes=yes)
            everywhere = admin.abort_transaction(name, seen.place)
    if output is OutputFormat.JSON:
        print_json({"transactional_id": name, "aborted": not dry_run, "everywhere": everywhere})
    elif dry_run:
        print(f"Would abort the transaction of {name}, which is open for {_age(seen.started_ms)}.")
    else:
        later = "" if everywhere else " Some participants do not have the outcome yet."
        print(f"Aborted the transaction of {name}.{later}")


def _listed_row(each: TransactionListing) -> _Row:
    return {**each._asdict(), "state": each.state.value}


def _held_back(admin: Admin, described: list[TransactionDescription]) -> dict[TopicPartition, int]:
    """Returns how far the last stable offset of each partition is behind. Partitions that cannot tell are left out."""
    from quorumlog.sdk import QuorumlogError

    found: dict[TopicPartition, int] = {}
    for where in sorted({each for one in described for each in one.partitions}):
        try:
            seen = admin.describe_producers(where)
        except QuorumlogError:
            continue
        found[where] = seen.high_watermark - seen.last_stable_offset
    return found


def _participant_rows(each: TransactionDescription, held_back: dict[TopicPartition, int]) -> list[_Row]:
    def outcome(unanswered: bool) -> str:
        if unanswered:
            return "missing"
        return "open" if each.place is not None else "written"

    common = {"transactional_id": each.transactional_id}
    return [
        *(
            {**common, "topic": where.topic, "partition": where.partition, "group": None,
             "outcome": outcome(each.partitions[where]), "held_back": held_back.get(where)}
            for where in sorted(each.partitions)
        ),
        *(
            {**common, "topic": None, "partition": None, "group": group, "outcome": outcome(unanswered),
             "held_back": None}
            for group, unanswered in sorted(each.groups.items())
        ),
    ]  # fmt: skip


def _described_row(each: TransactionDescription, rows: list[_Row]) -> _Row:
    return {
        "transactional_id": each.transactional_id,
        "state": each.state.value,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "transaction_timeout_ms": each.transaction_timeout_ms,
        "started_ms": each.started_ms,
        "cause": each.cause,
        "writers": each.writers,
        "coordinator": each.coordinator,
        "participants": [
            {key: value for key, value in row.items() if key != "transactional_id"}
            for row in rows
            if row["transactional_id"] == each.transactional_id
        ],
    }


def _summary(each: TransactionDescription) -> str:
    limit = f"{each.transaction_timeout_ms / 1000:g} s"
    opened = f", open for {_age(each.started_ms)} of {limit}" if each.started_ms is not None else ""
    cause = f", decided by: {each.cause}" if each.cause is not None else ""
    slow = sum(each.partitions.values()) + sum(each.groups.values())
    waits = f", {plural(slow, 'participant')} without the outcome" if slow else ""
    producer = f"producer {each.producer_id} epoch {each.producer_epoch}"
    return f"{each.transactional_id}: {each.state.value}, {producer}{opened}{cause}{waits}, node {each.coordinator}"


def _participant(row: _Row) -> str:
    return f"group {row['group']}" if row["topic"] is None else f"{row['topic']}-{row['partition']}"


def _number(value: object) -> object:
    return "-" if value is None else value


def _age(started_ms: int | None) -> str:
    return "-" if started_ms is None else f"{max(0.0, time.time() - started_ms / 1000):.1f} s"
