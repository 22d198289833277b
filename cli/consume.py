"""``quorumlog consume``: records in, lines out."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal, NamedTuple

import typer

from quorumlog.cli import record_text
from quorumlog.cli.boundary import WRONG_USAGE, CommandError
from quorumlog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    Output,
    OutputFormat,
    connect,
    path,
    unescape,
)
from quorumlog.cli.progress import progress
from quorumlog.cli.rendering import node_list, plural
from quorumlog.cli.times import parse_time_ms

if TYPE_CHECKING:
    from quorumlog.cli.record_text import LineFormat
    from quorumlog.sdk import Consumer, TopicPartition

EXAMPLE = "Example: quorumlog consume orders --from-beginning --until-end --format '{partition}:{offset} {key} {value}'"

#: The longest that one poll waits, so that Ctrl-C and time-outs are noticed.
POLL_MS = 500
#: Records taken per poll.
POLL_RECORDS = 5000


def consume(
    topic: Annotated[str, typer.Argument(help="What to read.")],
    *,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Start with the first record kept, not with the next one.")
    ] = False,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Read only this partition.")] = None,
    offset: Annotated[
        str | None,
        typer.Option("--offset", metavar="N|earliest|latest", help="Start at this offset; a number needs --partition."),
    ] = None,
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
        Path | None, typer.Option("--file", "-f", metavar="FILE", parser=path, help="Write to this file.")
    ] = None,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Prints each record as one line, until told to stop: by a limit, the end, a time-out or Ctrl-C."""
    to_line = _line_format(output, line_format, key_separator)
    start = _start(from_beginning, offset, from_time)
    if start.offset is not None and partition is None:
        raise CommandError("--offset needs --partition: offsets count within one partition", WRONG_USAGE)
    partitions = _partitions(bootstrap_servers, topic, partition)
    from quorumlog.sdk import Consumer

    # Whoever names an offset wants that one: to go on elsewhere without a word would be wrong.
    reset: Literal["none", "earliest"] = "earliest" if start.offset is None else "none"
    with (
        Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset=reset) as consumer,
        _output(file) as stream,
        _progress(topic, max_records, file) as show,
    ):
        consumer.assign(partitions)
        _seek(consumer, partitions, start)
        ends = consumer.end_offsets(partitions) if until_end else None
        received = 0
        for lines in _batches(consumer, to_line, max_records, timeout, ends):
            stream.write(b"".join(lines))
            stream.flush()
            received += len(lines)
            show(received)
    if max_records is not None and received < max_records and not until_end:
        raise CommandError(f"{plural(received, 'record')} of {max_records:,} came before {timeout:g} s of silence")


class _Start(NamedTuple):
    """Where to begin: at an offset, at a time, at the beginning, or else at the end."""

    offset: int | None = None
    time_ms: int | None = None
    beginning: bool = False


def _start(from_beginning: bool, offset: str | None, from_time: str | None) -> _Start:
    if sum((from_beginning, offset is not None, from_time is not None)) > 1:
        raise CommandError("give one of --offset, --from-time, --from-beginning, not both", WRONG_USAGE)
    if from_time is not None:
        return _Start(time_ms=parse_time_ms(from_time, "--from-time"))
    if offset is None or offset in ("earliest", "latest"):
        return _Start(beginning=from_beginning or offset == "earliest")
    if not offset.isdecimal() or int(offset) >= 1 << 63:
        raise CommandError(
            f"--offset '{offset}' is no offset: give a number from 0 on, earliest or latest", WRONG_USAGE
        )
    return _Start(offset=int(offset))


def _seek(consumer: Consumer, partitions: list[TopicPartition], start: _Start) -> None:
    if start.offset is not None:
        consumer.seek(partitions[0], start.offset)
    elif start.beginning:
        consumer.seek_to_beginning(*partitions)
    elif start.time_ms is None:
        consumer.seek_to_end(*partitions)
    else:
        # Looked up first: what is written between the two is not to be missed where no record is as late yet.
        ends = consumer.end_offsets(partitions)
        for where, found in consumer.offsets_for_times(dict.fromkeys(partitions, start.time_ms)).items():
            consumer.seek(where, ends[where] if found is None else found.offset)


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


def _partitions(bootstrap_servers: str, topic: str, partition: int | None) -> list[TopicPartition]:
    """The partitions to read.

    Raises:
        QuorumlogError: no such topic.
        CommandError: no such partition.
    """
    from quorumlog.sdk import TopicPartition

    with connect(bootstrap_servers) as admin:
        [description] = admin.describe_topics([topic])
    numbers = [known.partition for known in description.partitions]
    if partition is None:
        return [TopicPartition(topic, number) for number in numbers]
    if partition not in numbers:
        raise CommandError(f"topic {topic} has no partition {partition}; it has {node_list(numbers)}")
    return [TopicPartition(topic, partition)]


@contextmanager
def _output(file: Path | None) -> Iterator[BinaryIO]:
    if file is None:
        yield sys.stdout.buffer
        return
    with file.open("wb") as stream:
        yield stream


@contextmanager
def _progress(topic: str, max_records: int | None, file: Path | None) -> Iterator[Callable[[float], None]]:
    """A bar where the records themselves are not on the terminal."""
    if file is None and sys.stdout.isatty():
        yield lambda _received: None
        return
    with progress(f"consuming {topic}", max_records, "records") as show:
        yield show
