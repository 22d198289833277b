"""``quorumlog explain``: sends one record and shows its path."""

from __future__ import annotations

import os
from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from quorumlog.cli.options import (
    DEFAULT_BOOTSTRAP_SERVERS,
    BootstrapServers,
    Output,
    OutputFormat,
    client_options,
    topic_names,
)
from quorumlog.cli.rendering import print_json, print_table, symbol

if TYPE_CHECKING:
    from quorumlog.sdk import RecordExplanation, RecordStage

EXAMPLE = "Example: quorumlog explain orders '3 apples' --key anna"

#: Characters of the time line.
_LINE = 28


class AwaitedDisks(Enum):
    """The disks that an acknowledgement waits for."""

    LEADER = "1"
    ALL = "all"


_WIRE_ACKS: dict[AwaitedDisks, Literal[1, "all"]] = {AwaitedDisks.LEADER: 1, AwaitedDisks.ALL: "all"}


def explain(
    topic: Annotated[str, typer.Argument(help="Topic of the record.", autocompletion=topic_names)],
    value: Annotated[str, typer.Argument(help="Value of the record.")],
    *,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of the record.")] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition", min=0, help="Partition of the record; by default that of the key, or any without a key."
        ),
    ] = None,
    acks: Annotated[
        AwaitedDisks, typer.Option("--acks", help="Replicas that an acknowledgement waits for.")
    ] = AwaitedDisks.ALL,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, max=86_400, metavar="SECONDS", help="Give up after this time.")
    ] = 30.0,
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP_SERVERS,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Sends one record and shows when it reached each step: the producer, the leader's log, the disk of each replica.

    The record is an ordinary one, and stays in the topic.
    """
    from quorumlog.sdk import Producer

    with Producer(
        bootstrap_servers=bootstrap_servers,
        **client_options(),
        acks=_WIRE_ACKS[acks],
        delivery_timeout_ms=timeout * 1000,
        max_block_ms=timeout * 1000,
    ) as producer:
        explanation = producer.explain(
            topic, os.fsencode(value), None if key is None else os.fsencode(key), partition=partition
        )
    if output is OutputFormat.JSON:
        print_json({**asdict(explanation), "rule": explanation.rule, "decided_by": explanation.decided_by})
        return
    _print(explanation)


def _print(told: RecordExplanation) -> None:
    place = told.metadata
    print(f"{place.topic}-{place.partition}, offset {place.offset}: acknowledged after {_ms(told.answered_us)} ms.")
    print(f"It waited for {told.rule}.")
    if told.attempts > 1:
        print(f"It was sent {told.attempts} times; this is the last.")
    if told.untraced:
        print(f"The times of the leader are unknown: {told.untraced}.")
    rows = [_row(stage, told.answered_us) for stage in told.stages]
    print_table(("Where", "What", "From ms", "Took ms", "Disk ms", ""), rows)
    if told.on_the_way_us is not None:
        print(
            f"Request and response spent {_ms(told.on_the_way_us)} ms on the network together; their shares are"
            " unknown."
        )


def _row(stage: RecordStage, whole_us: int) -> tuple[str, ...]:
    took = "not by then" if stage.end_us is None else _ms(stage.end_us - stage.begin_us)
    what = stage.what + (", and decides" if stage.decided else "")
    disk = "" if stage.sync_us is None else _ms(stage.sync_us)
    return (stage.who, what, _ms(stage.begin_us), took, disk, _bar(stage, whole_us))


def _bar(stage: RecordStage, whole_us: int) -> str:
    """Returns a bar for the stage, on a line of ``_LINE`` characters for the whole time."""
    first = min(_LINE - 1, stage.begin_us * _LINE // max(1, whole_us))
    if stage.end_us is None:
        return " " * first + symbol("…", ".")
    return " " * first + symbol("█", "#") * max(1, min(_LINE, -(-stage.end_us * _LINE // max(1, whole_us))) - first)


def _ms(time_us: int) -> str:
    return f"{time_us / 1000:.2f}"
