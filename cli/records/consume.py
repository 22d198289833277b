"""``quorumlog consume``: records in, lines out."""

from __future__ import annotations

import io
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal, NamedTuple

import typer

from quorumlog.cli.boundary import WRONG_USAGE, CommandError, say
from quorumlog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    Output,
    OutputFormat,
    client_options,
    connect,
    file_path,
    topic_names,
    unescape,
)
from quorumlog.cli.progress import CountTeller, counting
from quorumlog.cli.records import record_text
from quorumlog.cli.records.reading_start import ReadingStart, parse_start, seek_start
from quorumlog.cli.rendering import node_list, plural

if TYPE_CHECKING:
    from quorumlog.cli.records.record_text import LineFormat
    from quorumlog.sdk import Consumer, TopicPartition

EXAMPLE = "Example: quorumlog consume orders --from-beginning --until-end --format '{partition}:{offset} {key} {value}'"

#: The longest that one poll waits, so that Ctrl-C and time-outs are noticed.
POLL_MS = 500
#: Records taken per poll.
POLL_RECORDS = 5000


class OnCorrupt(Enum):
    """What to do with a batch that cannot be read."""

    SKIP = "skip"
    RAISE = "raise"

    @property
    def name_in_sdk(self) -> Literal["skip", "raise"]:
        """The value of the consumer's option."""
        return "skip" if self is OnCorrupt.SKIP else "raise"


def consume(
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC…", help="What to read.", autocompletion=topic_names)
    ] = None,
    *,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="Read as a member of this group: where it left off, and only this member's share of the partitions;"
            " what has been printed is committed. What it has never read begins at the end, or with --from-beginning.",
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", metavar="REGEX", help="With --group: all topics whose whole name matches (RE2)."),
    ] = None,
    instance_id: Annotated[
        str | None,
        typer.Option(
            "--instance-id", help="With --group: a static member, whose partitions wait for it when it is restarted."
        ),
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start with the first record kept, not with the next one.")
    ] = False,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Read only this partition.")] = None,
    offset: Annotated[
        str | None,
        typer.Option(
            "--offset",
            metavar="N|-N|earliest|latest",
            help="Start at this offset, which needs --partition; -N: with the last N records of each partition.",
        ),
    ] = None,
    tail: Annotated[int | None, typer.Option("--tail", min=0, metavar="N", help="The same as --offset -N.")] = None,
    from_time: Annotated[
        str | None,
        typer.Option(
            "--from-time",
            metavar="TIME",
            help="Start with the first record at or after this: milliseconds since 1970, or a date and time.",
        ),
    ] = None,
    max_records: Annotated[
        int | None, typer.Option("--max-records", "-n", min=1, help="Stop after this many records.")
    ] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at what was the end when the command started.")
    ] = False,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, metavar="SECONDS", help="Stop after so long without a record.")
    ] = None,
    on_corrupt: Annotated[
        OnCorrupt,
        typer.Option("--on-corrupt", help="At a batch that cannot be read: skip it with a warning, or stop."),
    ] = OnCorrupt.SKIP,
    line_format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="TEMPLATE", help="Of {topic} {partition} {offset} {timestamp} {key} {value} {headers}."
        ),
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", help="Print keys too, with this between key and value.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", parser=file_path, help="Write to this file.")
    ] = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Prints each record as one line, until told to stop: by a limit, the end, a time-out or Ctrl-C."""
    to_line = _line_format(output, line_format, key_separator)
    start = parse_start(from_beginning=from_beginning, offset=offset, tail=tail, from_time=from_time)
    source = _Source(bootstrap_servers, tuple(topics or ()), partition, start, on_corrupt)
    if group is not None:
        membership = _Membership(group, pattern, instance_id)
        _check_group_usage(source, membership, until_end)
        opened = _open_in_group(source, membership)
    else:
        _check_usage(source, pattern, instance_id)
        opened = _open(source)
    with (
        opened as (consumer, partitions),
        _output(file) as stream,
        _progress(", ".join(source.topics) or str(pattern), file, ends=until_end or max_records is not None) as show,
    ):
        ends = consumer.end_offsets(partitions) if until_end else None
        received = 0
        for lines in _batches(consumer, to_line, max_records, timeout, ends):
            stream.write(b"".join(lines))
            stream.flush()
            if group is not None:
                _commit(consumer)
            received += len(lines)
            show(received, None if max_records is None else received / max_records)
    if max_records is not None and received < max_records and not until_end:
        raise CommandError(f"{plural(received, 'record')} of {max_records:,} came before {timeout:g} s of silence")


class _Source(NamedTuple):
    """What to read, from where on, and what to do with batches that cannot be read."""

    bootstrap_servers: str
    topics: tuple[str, ...]
    partition: int | None
    start: ReadingStart
    on_corrupt: OnCorrupt


class _Membership(NamedTuple):
    """In which group to read, all topics that match a pattern perhaps, under which static name."""

    group: str
    pattern: str | None
    instance_id: str | None


def _check_usage(source: _Source, pattern: str | None, instance_id: str | None) -> None:
    if pattern is not None or instance_id is not None:
        raise CommandError(f"--{'instance-id' if pattern is None else 'pattern'} needs --group", WRONG_USAGE)
    if not source.topics:
        raise CommandError("name a topic to read, or several", WRONG_USAGE)
    if source.partition is not None and len(source.topics) > 1:
        raise CommandError("--partition is of one topic: name one", WRONG_USAGE)
    if source.start.offset is not None and source.partition is None:
        raise CommandError("--offset needs --partition: offsets count within one partition", WRONG_USAGE)


def _check_group_usage(source: _Source, membership: _Membership, until_end: bool) -> None:
    if (membership.pattern is None) == (not source.topics):
        raise CommandError("give either topics or --pattern", WRONG_USAGE)
    if source.partition is not None or not source.start.is_for_groups:
        raise CommandError(
            "with --group the group says what to read, and from where on: leave --partition, --offset, --tail and"
            " --from-time out; 'quorumlog groups reset-offsets' moves a group",
            WRONG_USAGE,
        )
    if until_end:
        raise CommandError("--until-end is not for groups, whose partitions move: use --timeout", WRONG_USAGE)


@contextmanager
def _open(source: _Source) -> Iterator[tuple[Consumer, list[TopicPartition]]]:
    """A consumer of all that there is, or of one partition, at its start."""
    partitions = _partitions(source.bootstrap_servers, source.topics, source.partition)
    from quorumlog.sdk import Consumer

    # A user who names an offset wants that one: reading from another one without a word would be wrong.
    reset: Literal["none", "earliest"] = "earliest" if source.start.offset is None else "none"
    with Consumer(
        bootstrap_servers=source.bootstrap_servers,
        auto_offset_reset=reset,
        on_corrupt=source.on_corrupt.name_in_sdk,
        **client_options(),
    ) as consumer:
        consumer.assign(partitions)
        seek_start(consumer, partitions, source.start)
        yield consumer, partitions


@contextmanager
def _open_in_group(source: _Source, membership: _Membership) -> Iterator[tuple[Consumer, list[TopicPartition]]]:
    """A member of a group. It leaves when it is closed, so that others go on at once."""
    if source.topics:
        _partitions(source.bootstrap_servers, source.topics, None)  # A group waits for topics that do not exist.
    from quorumlog.sdk import Consumer

    with (
        _ended_by_sigterm(),
        Consumer(
            bootstrap_servers=source.bootstrap_servers,
            **client_options(),
            on_corrupt=source.on_corrupt.name_in_sdk,
            group_id=membership.group,
            group_instance_id=membership.instance_id,
            # Commits by itself too, where nothing has come yet: what is written while it is away is not to be missed.
            auto_offset_reset="earliest" if source.start.beginning else "latest",
        ) as consumer,
    ):
        consumer.subscribe(source.topics, pattern=membership.pattern)
        yield consumer, []


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the command as Ctrl-C does: a member that just went would be waited for until its session ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _commit(consumer: Consumer) -> None:
    """Commits what has been printed."""
    from quorumlog.sdk import CommitFailedError

    try:
        consumer.commit()
    except CommitFailedError as error:
        # Stopped for too long, perhaps by Ctrl-Z: the partitions are with others, and this member joins again.
        say(f"warning: {error.message}; others may print the last records again")


def _batches(
    consumer: Consumer,
    to_line: LineFormat,
    max_records: int | None,
    timeout: float | None,
    ends: dict[TopicPartition, int] | None,
) -> Iterator[list[bytes]]:
    """Lines of what each poll brought, until a limit is reached."""
    received = 0
    quiet_since = time.monotonic()
    while not _at_end(consumer, ends):
        wanted = POLL_RECORDS if max_records is None else min(POLL_RECORDS, max_records - received)
        if wanted == 0:
            return
        wait_ms: float = POLL_MS
        if timeout is not None:
            left_ms = (quiet_since + timeout - time.monotonic()) * 1000
            if left_ms < 0:
                return
            wait_ms = min(POLL_MS, max(1.0, left_ms))
        polled = consumer.poll(timeout_ms=wait_ms, max_records=wanted)
        lines = [
            to_line(record) + b"\n"
            for where, records in polled.items()
            for record in records
            if ends is None or record.offset < ends[where]
        ]
        if lines:
            received += len(lines)
            quiet_since = time.monotonic()
            yield lines


def _at_end(consumer: Consumer, ends: dict[TopicPartition, int] | None) -> bool:
    return ends is not None and all(consumer.position(where) >= end for where, end in ends.items())


def _line_format(output: OutputFormat, template: str | None, key_separator: str | None) -> LineFormat:
    if sum((output is OutputFormat.JSON, template is not None, key_separator is not None)) > 1:
        raise CommandError("give one of --output json, --format, --key-separator", WRONG_USAGE)
    if output is OutputFormat.JSON:
        return record_text.json_line
    if template is not None:
        return record_text.template_line(unescape(template))
    if key_separator is not None:
        return record_text.keyed_line(unescape(key_separator))
    return record_text.value_line


def _partitions(bootstrap_servers: str, topics: tuple[str, ...], partition: int | None) -> list[TopicPartition]:
    """The partitions to read.

    Raises:
        QuorumlogError: no such topic.
        CommandError: no such partition.
    """
    from quorumlog.sdk import TopicPartition

    with connect(bootstrap_servers) as admin:
        described = admin.describe_topics(topics)
    found = [TopicPartition(topic.name, each.partition) for topic in described for each in topic.partitions]
    if partition is None:
        return found
    chosen = [tp for tp in found if tp.partition == partition]
    if not chosen:
        numbers = node_list(tp.partition for tp in found)
        raise CommandError(f"topic {topics[0]} has no partition {partition}; it has {numbers}")
    return chosen


@contextmanager
def _output(file: Path | None) -> Iterator[BinaryIO]:
    if file is not None:
        with file.open("wb") as stream:
            yield stream
    elif isinstance(sys.stdout.buffer, io.RawIOBase):
        # PYTHONUNBUFFERED is set. A raw stream may write a part and be content: the rest would be lost, and committed.
        with open(sys.stdout.fileno(), "wb", closefd=False) as stream:
            yield stream
    else:
        yield sys.stdout.buffer


@contextmanager
def _progress(what: str, file: Path | None, *, ends: bool) -> Iterator[CountTeller]:
    """How far it is, where the records themselves are not on the terminal; without one, where it will end."""
    if file is None and sys.stdout.isatty():
        yield lambda _received, _share=None: None
        return
    with counting(f"consuming {what}", "records", plain_lines=ends) as show:
        yield show
