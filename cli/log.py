"""``quorumlog log``: inspects a node's data on disk while the node is down."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli.boundary import FAILED, WRONG_USAGE, CommandError
from quorumlog.cli.options import Output, OutputFormat, directory_path
from quorumlog.cli.progress import progress
from quorumlog.cli.rendering import node_list, plural, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quorumlog.storage.inspection import EntryRow, RaftGroupRow
    from quorumlog.storage.verification import VerifyReport

app = typer.Typer()

NodeDirectory = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        parser=directory_path,
        help="Data directory of one node, which must not be running.",
    ),
]

#: The last column is printed only for damaged entries.
_ENTRY_COLUMNS = ("INDEX", "TERM", "KIND", "BYTES", "OFFSETS", "RECORDS", "CODEC", "PRODUCER", "PROBLEM")
#: More entries are printed as further tables.
_ENTRIES_IN_A_TABLE = 500


@app.command("dump", epilog="Example: quorumlog log dump --data-dir /tmp/quorumlog/node-1 --group 1000 --from-index 10")
def dump(
    *,
    data_dir: NodeDirectory,
    group: Annotated[
        int | None, typer.Option("--group", min=0, help="Print this Raft group's entries; without it, all groups.")
    ] = None,
    from_index: Annotated[int | None, typer.Option("--from-index", min=0, help="First entry to print.")] = None,
    to_index: Annotated[int | None, typer.Option("--to-index", min=0, help="Last entry to print.")] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Prints the Raft groups on a node's disk, or one group's entries. Group 0 is the cluster's metadata; the group of
    a partition is in 'topics describe --output json'."""
    from quorumlog.storage.inspection import Inspection

    if group is None and (from_index is not None or to_index is not None):
        raise CommandError("--from-index and --to-index need --group", WRONG_USAGE)
    with Inspection(data_dir) as inspection:
        known = [row.group for row in inspection.groups()]
        if group is None:
            _print_groups(list(inspection.groups()), output)
        elif group not in known:
            raise CommandError(f"no group {group} in {data_dir}; existing groups: {node_list(known) or 'none'}")
        else:
            _print_entries(inspection.entries(group, from_index, to_index), output)


@app.command("verify", epilog="Example: quorumlog log verify --data-dir /tmp/quorumlog/node-1")
def verify(*, data_dir: NodeDirectory, output: Output = OutputFormat.TABLE) -> None:
    """Reads all of a node's data and checks it: pages, checksums, hash chains, indexes. Exits with 1 on damage;
    repairs and deletes nothing."""
    from quorumlog.storage.verification import verify as verify_directory

    with progress(f"verifying {data_dir}", None, "entries") as show:
        report = verify_directory(data_dir, lambda done, _in_all: show(done))
    _print_report(report, output)
    if not report.sound:
        raise typer.Exit(FAILED)


def _print_groups(groups: list[RaftGroupRow], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json([_group_json(row) for row in groups])
        return
    print_table(
        ("Group", "Voters", "Learners", "Term", "Vote", "Commit", "Entries", "Table rows", "Problems"),
        (
            (
                row.group,
                node_list(row.configuration.voters) if row.configuration else "?",
                (node_list(row.configuration.learners) or "-") if row.configuration else "?",
                row.hard_state.term if row.hard_state else "?",
                row.hard_state.vote if row.hard_state else "?",
                row.hard_state.commit if row.hard_state else "?",
                "-" if row.first_index is None else f"{row.first_index} to {row.last_index}",
                row.table_rows,
                "; ".join(map(str, row.problems)) or "-",
            )
            for row in groups
        ),
    )


def _group_json(row: RaftGroupRow) -> dict[str, object]:
    configuration, state = row.configuration, row.hard_state
    return {
        "group": row.group,
        "voters": list(configuration.voters) if configuration else None,
        "learners": list(configuration.learners) if configuration else None,
        "term": state.term if state else None,
        "vote": state.vote if state else None,
        "commit": state.commit if state else None,
        "first_index": row.first_index,
        "last_index": row.last_index,
        "table_rows": row.table_rows,
        "problems": [str(problem) for problem in row.problems],
    }


def _print_entries(entries: Iterable[EntryRow], output: OutputFormat) -> None:
    """Prints entries while they are being read: a log may be larger than the memory."""
    if output is OutputFormat.JSON:
        for row in entries:
            sys.stdout.write(json.dumps(_entry_json(row)) + "\n")
        return
    cells = map(_entry_cells, entries)
    page = list(islice(cells, _ENTRIES_IN_A_TABLE))
    while True:
        columns = _ENTRY_COLUMNS if any(row[-1] != "-" for row in page) else _ENTRY_COLUMNS[:-1]
        print_table(columns, [row[: len(columns)] for row in page])
        if not (page := list(islice(cells, _ENTRIES_IN_A_TABLE))):
            return


def _entry_cells(row: EntryRow) -> tuple[object, ...]:
    header = row.header
    producer = "-"
    if header is not None and header.producer_id >= 0:
        producer = f"{header.producer_id}/{header.producer_epoch} sequence {header.base_sequence}"
    return (
        row.index,
        "?" if row.term is None else row.term,
        "?" if row.kind is None else row.kind.name.lower(),
        row.length_bytes,
        f"{header.base_offset} to {header.last_offset}" if header else "-",
        header.record_count if header else "-",
        _codec(row),
        producer,
        _problem(row),
    )


def _problem(row: EntryRow) -> str:
    if row.problem is not None:
        return f"DAMAGED: {row.problem}"
    reason = _unreadable(row)
    return "-" if reason is None else f"UNREADABLE: {reason}"


def _unreadable(row: EntryRow) -> str | None:
    """Returns why the records of a sound batch cannot be read; None if they can. They are as their producer wrote them,
    on every replica: this is not damage.
    """
    from quorumlog.wire.columns import read_columns
    from quorumlog.wire.entry import CorruptEntryError

    if row.problem is not None or row.header is None or row.data is None:
        return None
    try:
        read_columns(row.data, row.header)
    except CorruptEntryError as error:
        return str(error)
    return None


def _codec(row: EntryRow) -> str:
    """Returns the compression of the payload; for a Kafka client's batch, Kafka's name for it."""
    if row.kafka is not None:
        return f"kafka/{row.kafka.codec.name.lower()}"
    return row.header.codec.name.lower() if row.header else "-"


def _entry_json(row: EntryRow) -> dict[str, object]:
    fields: dict[str, object] = {
        "index": row.index,
        "term": row.term,
        "kind": None if row.kind is None else row.kind.name.lower(),
        "length_bytes": row.length_bytes,
        "previous_hash": row.previous_hash,
        "hash": row.hash,
        "problem": row.problem,
    }
    if row.header is not None:
        fields["batch"] = {
            "base_offset": row.header.base_offset,
            "record_count": row.header.record_count,
            "format": "arrow" if row.kafka is None else "kafka",
            "codec": (row.header if row.kafka is None else row.kafka).codec.name.lower(),
            "timestamp_type": row.header.timestamp_type.name.lower(),
            "append_time_ms": row.header.append_time_ms,
            "max_timestamp_ms": row.header.max_timestamp_ms,
            "producer_id": row.header.producer_id,
            "producer_epoch": row.header.producer_epoch,
            "base_sequence": row.header.base_sequence,
            "unreadable": _unreadable(row),
        }
    return fields


def _print_report(report: VerifyReport, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        counts = {
            "groups": report.groups,
            "entries": report.entries,
            "entry_bytes": report.entry_bytes,
            "offset_rows": report.offset_rows,
        }
        problems = [{"group": found.group, "index": found.index, "what": found.what} for found in report.problems]
        print_json({"data_dir": str(report.data_dir), "sound": report.sound, "problems": problems} | counts)
        return
    read = f"{plural(report.groups, 'group')}, {report.entries:,} entries, {report.entry_bytes:,} bytes of entries"
    if report.sound:
        print(f"{report.data_dir}: sound: {read}, every checksum and hash chain is correct")
        return
    print(f"{report.data_dir}: DAMAGED: {plural(len(report.problems), 'problem')} in {read}")
    for problem in report.problems:
        print(f"  {problem}")
    print("keep this directory; the other replicas have the data. Damaged data is never served")
