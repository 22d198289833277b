"""``quorumlog backup``: takes backups of a running cluster, verifies them, and restores them into a fresh one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from quorumlog.cli.boundary import FAILED, WRONG_USAGE, CommandError
from quorumlog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    Output,
    OutputFormat,
    client_options,
    parse_settings,
)
from quorumlog.cli.progress import progress
from quorumlog.cli.rendering import plural, print_json

if TYPE_CHECKING:
    from quorumlog.sdk.backup.manifest import Manifest
    from quorumlog.sdk.backup.verification import VerificationReport

app = typer.Typer()

Place = Annotated[
    str,
    typer.Argument(
        metavar="PLACE",
        help="Backup location: a directory, or an fsspec URL such as s3://bucket/prefix.",
        show_default=False,
    ),
]
Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="NAME", help="Topic to include; repeatable; by default all.")
]


@app.callback()
def backup() -> None:
    """Backups."""


@app.command("create", epilog="Example: quorumlog backup create /backups/orders")
def create(
    place: Place,
    *,
    topics: Topics = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Takes a backup while the cluster runs. An existing backup is extended: only new data is copied."""
    from quorumlog.sdk.backup.commands import create_backup

    with progress("copying", None, "bytes") as tell:
        report = create_backup(
            place, bootstrap_servers=bootstrap_servers, topics=topics, progress=tell, **client_options()
        )
    counts = _counts(report.manifest)
    if output is OutputFormat.JSON:
        print_json(
            {
                **counts,
                "copied_bytes": report.copied_bytes,
                "kept_bytes": report.kept_bytes,
                "notes": list(report.notes),
            }
        )
        return
    for note in report.notes:
        print(f"Note: {note}.")
    print(
        f"Backup {report.manifest.sequence} of cluster {report.manifest.cluster_id}: {_summary(report.manifest)};"
        f" {report.copied_bytes:,} bytes copied, {report.kept_bytes:,} already present."
    )


@app.command("verify", epilog="Example: quorumlog backup verify /backups/orders")
def verify(place: Place, *, output: Output = OutputFormat.TABLE) -> None:
    """Reads a whole backup and prints each damaged or missing part on a line of its own. Needs no cluster."""
    from quorumlog.sdk.backup.commands import verify_backup

    with progress("reading", None, "bytes") as tell:
        report = verify_backup(place, progress=tell)
    if output is OutputFormat.JSON:
        unreadable = {"unreadable": list(report.unreadable), "unreadable_batches": report.unreadable_batches}
        print_json({**_counts(report.manifest), **_read(report), "problems": list(report.problems), **unreadable})
    elif not report.problems and report.manifest is not None:
        taken = datetime.fromtimestamp(report.manifest.taken_ms / 1000, UTC).isoformat(timespec="seconds")
        print(f"Backup {report.manifest.sequence} of cluster {report.manifest.cluster_id}, taken {taken}: sound.")
        print(f"{_summary(report.manifest)}; {report.records:,} records in {report.size_bytes:,} bytes.")
    if report.manifest is not None and report.manifest.cut_transactions and output is OutputFormat.TABLE:
        print("It may have a part of a transaction: commits could not be held when it was taken.")
    for problem in report.problems if output is OutputFormat.TABLE else ():
        print(problem)
    if report.unreadable and output is OutputFormat.TABLE:
        print(f"{report.unreadable_batches:,} of its batches are unreadable as the producer wrote them:")
        for line in report.unreadable:
            print(f"  {line}")
    if report.problems:
        raise typer.Exit(FAILED)


@app.command("restore", epilog="Example: quorumlog backup restore /backups/orders --config retention.ms=-1")
def restore(
    place: Place,
    *,
    topics: Topics = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            help="Replication factor of all topics; by default that of the backup.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="KEY=VALUE", help="Setting for all topics; repeatable.")
    ] = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Restores a backup into a fresh cluster: records with offsets, settings, producers and groups. Run it again to
    resume.
    """
    from quorumlog.sdk.backup.commands import restore_backup

    if replication_factor is not None and not 1 <= replication_factor <= 1_000:
        raise CommandError(f"--replication-factor {replication_factor} is out of range: give 1 to 1000", WRONG_USAGE)
    configs = parse_settings(config or [])
    with progress("restoring", None, "bytes") as tell:
        report = restore_backup(
            place,
            bootstrap_servers=bootstrap_servers,
            **client_options(),
            topics=topics,
            replication_factor=replication_factor,
            configs=configs,
            progress=tell,
        )
    if output is OutputFormat.JSON:
        print_json(report._asdict())
        return
    print(
        f"Restored {plural(report.topics, 'topic')} with {plural(report.partitions, 'partition')},"
        f" {report.size_bytes:,} bytes; {plural(report.groups, 'group')},"
        f" {plural(report.producer_names, 'producer name')}."
    )


def _summary(manifest: Manifest) -> str:
    partitions = sum(len(topic.partitions) for topic in manifest.topics)
    return (
        f"{plural(len(manifest.topics), 'topic')} with {plural(partitions, 'partition')},"
        f" {plural(len(manifest.groups), 'group')}, {plural(len(manifest.producer_names), 'producer name')}"
    )


def _counts(manifest: Manifest | None) -> dict[str, object]:
    if manifest is None:
        return {}
    return {
        "cluster_id": manifest.cluster_id,
        "sequence": manifest.sequence,
        "taken_ms": manifest.taken_ms,
        "topics": len(manifest.topics),
        "partitions": sum(len(topic.partitions) for topic in manifest.topics),
        "groups": len(manifest.groups),
        "producer_names": len(manifest.producer_names),
        "cut_transactions": manifest.cut_transactions,
    }


def _read(report: VerificationReport) -> dict[str, object]:
    return {
        "files": report.files,
        "size_bytes": report.size_bytes,
        "batches": report.batches,
        "records": report.records,
    }
