"""``quorumlog produce``: sends lines as records."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Literal

import typer

from quorumlog.cli.boundary import WRONG_USAGE, CommandError, one_line, say
from quorumlog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    Output,
    OutputFormat,
    client_options,
    file_path,
    topic_names,
    unescape,
)
from quorumlog.cli.progress import counting
from quorumlog.cli.rendering import plural, print_json

if TYPE_CHECKING:
    from quorumlog.sdk import RecordFuture

EXAMPLE = "Example: seq 1 100 | quorumlog produce orders        or: quorumlog produce orders -k : --file keyed.txt"

#: Interval of the progress updates (s).
PROGRESS_EVERY_S = 0.1
#: Limits of this command for a request and a line; the topic and the nodes have limits of their own.
LARGEST_REQUEST_BYTES = 16 << 20
LARGEST_LINE_BYTES = 15 << 20
#: Time for which Ctrl-C waits for records in flight (s).
INTERRUPTED_WAIT_S = 2.0


class Acks(Enum):
    """Number of replicas that must have a record before it counts as sent."""

    NONE = "0"
    LEADER = "1"
    ALL = "all"


_WIRE_ACKS: dict[Acks, Literal[0, 1, "all"]] = {Acks.NONE: 0, Acks.LEADER: 1, Acks.ALL: "all"}


class Compression(Enum):
    """Compression of record batches."""

    NONE = "none"
    LZ4 = "lz4"
    ZSTD = "zstd"


@dataclass(slots=True)
class _Acknowledged:
    """Counts of acknowledged records."""

    records: int = 0
    pending: deque[RecordFuture] = field(default_factory=deque)
    offsets: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # partition: (records, first, last offset)

    def settle_done(self) -> None:
        """Counts the oldest records whose outcome is known."""
        while self.pending and self.pending[0].done():
            self._settle(self.pending.popleft())

    def settle_all(self) -> None:
        """Waits for all acknowledgements, and counts them."""
        while self.pending:
            self._settle(self.pending.popleft())

    def arrived(self) -> int:
        """Returns how many records are acknowledged, including those sent after one whose outcome is unknown."""
        return self.records + sum(future.succeeded() for future in self.pending)

    def _settle(self, future: RecordFuture) -> None:
        metadata = future.result()
        self.records += 1
        count, first, last = self.offsets.get(metadata.partition, (0, metadata.offset, metadata.offset))
        self.offsets[metadata.partition] = (count + 1, min(first, metadata.offset), max(last, metadata.offset))


def produce(
    topic: Annotated[str, typer.Argument(help="Topic of the records.", autocompletion=topic_names)],
    *,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", metavar="FILE", parser=file_path, help="Read this file instead of standard input."
        ),
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-k", help="Split each line into key and value at this separator.")
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", min=0, help="Partition of all records; by default that of the key, or any without a key."
        ),
    ] = None,
    acks: Annotated[Acks, typer.Option("--acks", help="Replicas that an acknowledgement waits for.")] = Acks.ALL,
    compression: Annotated[
        Compression, typer.Option("--compression", help="Compression of record batches.")
    ] = Compression.NONE,
    headers: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="Header of every record; repeatable.")
    ] = None,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=0.1, max=86_400, metavar="SECONDS", help="Give up on a record after this time."),
    ] = 30.0,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Sends each line as one record, waits until all are acknowledged, and prints their offsets.

    A line ends with a newline; all its other bytes are sent unchanged.
    """
    from quorumlog.sdk import Producer

    separator = None if key_separator is None else unescape(key_separator).encode()
    if separator == b"":
        raise CommandError(
            "--key-separator is empty: give the text that ends the key in each line, such as ':'", WRONG_USAGE
        )
    pairs = _headers(headers or [])
    sent = _Acknowledged()
    with (
        _input(file) as lines,
        Producer(
            bootstrap_servers=bootstrap_servers,
            **client_options(),
            acks=_WIRE_ACKS[acks],
            enable_idempotence=acks is Acks.ALL,
            compression_type=None if compression is Compression.NONE else compression.value,
            delivery_timeout_ms=timeout * 1000,
            max_block_ms=timeout * 1000,
            max_request_size=LARGEST_REQUEST_BYTES,
        ) as producer,
        counting(f"producing to {topic}", "records") as show,
    ):
        producer.partitions_for(topic)  # Without a cluster or a topic, no line needs to be read.
        handed_over = 0
        next_show_s = 0.0
        try:
            for key, value in _records(lines, separator):
                if len(value) + len(key or b"") > LARGEST_LINE_BYTES:
                    raise CommandError(
                        f"line {handed_over + 1} has {len(value):,} bytes, but this command accepts lines of up to"
                        f" {LARGEST_LINE_BYTES:,} bytes"
                    )
                sent.pending.append(producer.send(topic, value=value, key=key, partition=partition, headers=pairs))
                handed_over += 1
                sent.settle_done()
                if (now := time.monotonic()) >= next_show_s:
                    next_show_s = now + PROGRESS_EVERY_S
                    show(sent.records, _share(lines) if file is not None else None)
            producer.flush()
            sent.settle_all()
        except Exception as error:
            # Records that were handed over are in flight and may well arrive: the error must state how many.
            producer.flush()
            arrived = sent.arrived()
            if not arrived:
                raise
            raise CommandError(f"{one_line(error)}; {plural(arrived, 'record')} had been acknowledged") from error
        except KeyboardInterrupt:
            producer.close(timeout=INTERRUPTED_WAIT_S)
            arrived = sent.arrived()
            lost = handed_over - arrived
            unsure = f"; {lost:,} more were sent, and may arrive" if lost else ""
            say(f"interrupted: {plural(arrived, 'record')} had been acknowledged{unsure}")
            raise
    _report(topic, sent, output)


def _headers(pairs: list[str]) -> list[tuple[str, bytes]]:
    headers = []
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise CommandError(f"--header '{pair}' is not NAME=VALUE, such as trace=42", WRONG_USAGE)
        headers.append((name, os.fsencode(value)))
    return headers


def _share(lines: BinaryIO) -> float | None:
    """Returns the share of a file that has been read; None if it is unknown, for example for a pipe."""
    status = os.fstat(lines.fileno())
    return lines.tell() / status.st_size if stat.S_ISREG(status.st_mode) and status.st_size else None


@contextmanager
def _input(file: Path | None) -> Iterator[BinaryIO]:
    if file is not None:
        with file.open("rb") as lines:
            yield lines
        return
    if sys.stdin.isatty():
        print("each line becomes a record; press Ctrl-D to finish", file=sys.stderr)
    yield sys.stdin.buffer


def _records(lines: BinaryIO, separator: bytes | None) -> Iterator[tuple[bytes | None, bytes]]:
    for number, line in enumerate(lines, start=1):
        text = line.removesuffix(b"\n")
        if separator is None:
            yield None, text
            continue
        key, found, value = text.partition(separator)
        if not found:
            raise CommandError(
                f"line {number} has no '{separator.decode()}': --key-separator requires one in each line"
            )
        yield key, value


def _report(topic: str, sent: _Acknowledged, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        partitions = [
            {"partition": partition, "records": count, "first_offset": first, "last_offset": last}
            for partition, (count, first, last) in sorted(sent.offsets.items())
        ]
        print_json({"topic": topic, "records": sent.records, "partitions": partitions})
        return
    where = ", ".join(
        f"partition {partition}: {first}" + (f" to {last}" if last > first else "")
        for partition, (_count, first, last) in sorted(sent.offsets.items())
        if first >= 0
    )
    print(f"Produced {plural(sent.records, 'record')} to {topic}" + (f" (offsets: {where})." if where else "."))
