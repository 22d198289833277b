"""Tables on terminals of every width: nothing of a table is ever cut, whatever it holds."""

from __future__ import annotations

import ast
import io
import json
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.cells import cell_len

from quorumlog.cli import rendering

CLI = Path(rendering.__file__).parent
WIDTHS = (60, 80, 100, 120)
Row = tuple[object, ...]

ADDRESS = "127.0.0.1:19092"
CONSUMER = "consumer-3f2b0c9e-5d0e-4a51-9a53-0d8f1c9d2e77"
SENTENCE = "How long records are kept, in milliseconds; -1 for no limit. The oldest segment goes first, as a whole."
#: Every place that prints a table, with its columns and a realistic row.
TABLES: dict[str, tuple[tuple[str, ...], Row]] = {
    "acls/commands._print_rules": (
        ("RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "OPERATION", "PERMISSION"),
        ("Topic", "payments.orders", "Literal", "User:CN=billing,O=Example", "DescribeConfigs", "Allow"),
    ),
    "certs/commands.show": (
        ("Of", "Names", "Issuer", "Serial", "From", "Until", "Days"),
        ("node 1", "node-1.example.com,127.0.0.1", "node authority", "1f" * 20, "2026-11-27", "2027-11-27", 365),
    ),
    "certs/revocations.revocations": (("REVOKED", "SINCE"), ("1f" * 20, "2026-11-27 17:50:36")),
    "chaos.list_scenarios": (("Scenario", "Rounds", "What happens"), ("kill-leader", 10, SENTENCE)),
    "cluster._print": (
        ("Node", "Process", "Address", "State", "Log"),
        (1, 4711, ADDRESS, "not ready: not registered with the controller yet", "/tmp/quorumlog/node-1/node-1.log"),
    ),
    "delete_records.delete_records": (("Topic", "Partition", "LogStartOffset"), ("orders", 0, 1_000_000)),
    "group_offsets._show": (
        ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"),
        ("billing", "orders", 0, "-", 1_000_000),
    ),
    "group_offsets.delete_offsets": (("GROUP", "TOPIC", "PARTITION", "OFFSET"), ("billing", "orders", 0, 1_000_000)),
    "group_views.describe": (
        (
            "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST",
            "CLIENT-ID", "ASSIGNMENT",
        ),
        ("billing", "orders", 0, 1_000_000, 1_000_100, 100, CONSUMER, "/127.0.0.1", "billing-1", "orders(0,1,2)"),
    ),
    "groups.list_groups": (("GROUP", "KIND", "STATE", "#MEMBERS"), ("billing", "consumer", "stable", 3)),
    "health.describe": (
        ("Node", "Address", "Rack", "Machine", "State", "Controller", "Version"),
        (1, ADDRESS, "rack-a", "machine-a", "up", "active", "0.1.0"),
    ),
    "health.describe_features": (("Node", "Supports", "Version"), (1, 7, "0.1.0")),
    "leaders._print": (
        ("Topic", "Partition", "Leader", "Preferred", "Result"),
        ("orders", 0, "none", 1, "not possible: the preferred leader is not in sync with the leader"),
    ),
    "log._print_entries": (
        ("INDEX", "TERM", "KIND", "BYTES", "OFFSETS", "RECORDS", "CODEC", "PRODUCER", "PROBLEM"),
        (1_000, 3, "batch", 16_384, "1000 to 1999", 1_000, "kafka/zstd", "1000/0 sequence 77", "DAMAGED: the checksum"),
    ),
    "log._print_groups": (
        ("Group", "Voters", "Learners", "Term", "Vote", "Commit", "Entries", "Table rows", "Problems"),
        (1_000, "1,2,3", "-", 3, 1, 1_000, "1 to 1000", 12, "entry 7: the checksum does not match; entry 8: missing"),
    ),
    "nodes._print_moves": (("Topic", "Partition", "From", "To"), ("orders", 0, "1,2,3", "2,3,4")),
    "nodes.list_nodes": (
        ("Node", "Address", "Rack", "Machine", "State", "Replicas", "Leaders", "Votes", "Version", "Last scrubbed"),
        (1, ADDRESS, "-", "-", "up", 16, 5, "yes", "0.1.0", "2026-11-27 17:50:36"),
    ),
    "nodes.settings": (
        ("Setting", "Value", "Source", "Otherwise"),
        ("compaction_bytes_per_second", "50000000", "node", "100000000 (cluster), 33554432 (default)"),
    ),
    "partitions.list_reassignments": (
        ("Topic", "Partition", "Replicas", "Adding", "Removing", "Throttle"),
        ("orders", 0, "1,2,3", "4", "1", "50.0 MB/s"),
    ),
    "partitions.reassign": (("Topic", "Partition", "Replicas", "Result"), ("orders", 0, "1,2,3", "is being moved")),
    "partitions.rebalance": (
        ("Node", "Replicas", "Preferred leader of", "Bytes"),
        (1, "16 → 12", "5 → 4", "1.4 GB → 1.1 GB"),
    ),
    "producers.list_producers": (
        ("NAME", "ID", "EPOCH", "CLAIMED"),
        ("spark-orders-0", "1000", 3, "2026-11-27 17:50:36"),
    ),
    "records/explain._print": (
        ("Where", "What", "From ms", "Took ms", "Disk ms", ""),
        ("node 2 (follower)", "writes the entry, and decides", "1.25", "not by then", "0.98", " " * 24 + "█" * 12),
    ),
    "topic_changes.configs": (
        ("Key", "Value", "Default", "Meaning"),
        ("min.cleanable.dirty.ratio", "604800000", "604800000", SENTENCE),
    ),
    "topic_offsets.offsets": (
        ("TOPIC", "PARTITION", "OFFSET", "TIMESTAMP"),
        ("orders", 0, 1_000_000, 1_700_000_000_000),
    ),
    "transactions.describe": (
        ("TRANSACTIONAL-ID", "PARTICIPANT", "OUTCOME", "HELD-BACK"),
        ("billing-transfers", "orders-of-europe-12", "missing", 1_000_000),
    ),
    "transactions.list_transactions": (
        ("TRANSACTIONAL-ID", "PRODUCER", "EPOCH", "STATE", "OPEN-FOR"),
        ("billing-transfers", 1_000, 12, "PrepareCommit", "12.3 s"),
    ),
    "users/commands.list_users": (
        ("USER", "MECHANISM", "ITERATIONS", "SUPER USER", "PASSWORD SINCE"),
        ("alice", "SCRAM-SHA-256", 4_096, "no", "2026-11-27 17:50:36"),
    ),
    "users/quotas.list_quotas": (
        ("PRINCIPAL", "PRODUCE BYTES PER SECOND", "FETCH BYTES PER SECOND", "REQUEST MILLISECONDS PER SECOND"),
        ("User:CN=billing,O=Example", "50000000", "-", "-"),
    ),
}  # fmt: skip


class Terminal(io.StringIO):
    """A terminal that keeps what it was sent."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Prints a table on a terminal of a width; returns the text without boldness."""

    def show(width: int, columns: tuple[str, ...], rows: list[Row]) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        terminal = Terminal()
        monkeypatch.setattr(sys, "stdout", terminal)
        rendering.print_table(columns, rows)
        return re.sub("\033\\[[01]m", "", terminal.getvalue())

    return show


def assert_complete(printed: str, columns: tuple[str, ...], rows: list[Row]) -> None:
    """Every word of every heading and cell is shown, whole."""
    printed_words = set(re.sub(r":( |$)", " ", printed, flags=re.M).split()) | set(printed.split())
    for text in (*columns, *(str(cell) for row in rows for cell in row)):
        missing = set(text.split()) - printed_words
        assert not missing, printed
    assert ("…" in printed) == any("…" in str(cell) for row in rows for cell in row)


def assert_fits(printed: str, width: int, rows: list[Row]) -> None:
    """No line is too long, except for one that holds a longer word."""
    longest_word = max(cell_len(word) for row in rows for cell in row for word in str(cell).split() or [""])
    for line in printed.splitlines():
        assert cell_len(line) <= width or longest_word > width - 30, line


def test_samples_cover_all_tables() -> None:
    """``TABLES`` has each function of the command line that prints a table."""
    printing = set()
    for file in CLI.rglob("*.py"):
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, ast.FunctionDef) and any(
                isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print_table"
                for node in ast.walk(function)
            ):
                printing.add(f"{file.relative_to(CLI).with_suffix('')}.{function.name}")
    assert printing == set(TABLES)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("place", TABLES)
def test_tables_are_complete(shown: Callable[..., str], place: str, width: int) -> None:
    """Realistic rows are whole and fit."""
    columns, row = TABLES[place]
    rows = [row] * 3
    printed = shown(width, columns, rows)
    assert_complete(printed, columns, rows)
    assert_fits(printed, width, rows)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("place", TABLES)
def test_extreme_tables_are_complete(shown: Callable[..., str], place: str, width: int) -> None:
    """Names of 249 characters, lists of 64 partitions, the largest numbers, long sentences, and wide characters."""
    columns, row = TABLES[place]
    partitions = "orders(" + ",".join(map(str, range(64))) + ")"
    extremes = ("n" * 249, partitions, SENTENCE * 3, "注文" * 40, "", " ")
    rows: list[Row] = [tuple(2**63 - 1 if isinstance(cell, int) else text for cell in row) for text in extremes]
    assert_complete(shown(width, columns, rows), columns, rows)
    for i in range(len(row)):
        one = (*row[:i], extremes[0], *row[i + 1 :])
        assert_complete(shown(width, columns, [row, one]), columns, [row, one])


def test_random_tables_are_complete(shown: Callable[..., str]) -> None:
    """Words of any length, in any number, on any width from 60 up."""
    seed = random.randrange(2**32)
    print("seed", seed)
    numbers = random.Random(seed)
    for _ in range(300):
        width = numbers.randint(60, 160)
        columns = tuple(f"H{i}" * numbers.randint(1, 6) for i in range(numbers.randint(1, 10)))
        rows: list[Row] = [
            tuple(" ".join("w" * numbers.randint(1, 30) for _ in range(numbers.choice((0, 1, 1, 9)))) for _ in columns)
            for _ in range(numbers.randint(0, 4))
        ]
        printed = shown(width, columns, rows)
        assert_complete(printed, columns if rows else (), rows)
        assert_fits(printed, width, rows or [("",)])


def test_short_columns_stay_whole(shown: Callable[..., str]) -> None:
    """Long text wraps while names, numbers and times beside it stay on one line."""
    columns, row = TABLES["cluster._print"]
    printed = shown(100, columns, [row])
    [line] = [line for line in printed.splitlines() if ADDRESS in line]
    assert "4711" in line
    assert "not ready: not registered" in line


def test_long_text_moves_below(shown: Callable[..., str]) -> None:
    """The meaning of a key is below its values, and a member's ids below the offsets, which stay in columns."""
    columns, row = TABLES["topic_changes.configs"]
    printed = shown(60, columns, [row]).splitlines()
    assert printed[1].split() == ["Key", "Value", "Default"]
    assert printed[3].split() == ["min.cleanable.dirty.ratio", "604800000", "604800000"]
    assert printed[4].startswith("     Meaning: How long records")
    columns, row = (part[:-1] for part in TABLES["group_views.describe"])
    printed = shown(80, columns, [row]).splitlines()
    assert printed[1].split() == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CLIENT-ID"]
    assert printed[3].split() == ["billing", "orders", "0", "1000000", "1000100", "100", "billing-1"]
    assert printed[4] == f"     CONSUMER-ID: {CONSUMER}"
    assert printed[5] == "     HOST: /127.0.0.1"


def test_charts_keep_their_place(shown: Callable[..., str]) -> None:
    """The bar of a stage is on a line of its own, as far to the right as before."""
    columns, row = TABLES["records/explain._print"]
    for width in WIDTHS:
        bars = {
            line.index("█")
            for line in shown(width, columns, [row, (*row[:1], "", *row[2:])]).splitlines()
            if "█" in line
        }
        assert len(bars) == 1
    assert f"\n     {row[-1]}\n" in shown(60, columns, [row])


def test_records_instead_of_columns(shown: Callable[..., str]) -> None:
    """Each row is a block if columns do not fit; a long name stays on one line of output, to be copied."""
    columns, row = TABLES["group_views.describe"]
    printed = shown(60, columns, [row, ("n" * 249, *row[1:])])
    assert f" CONSUMER-ID:    {CONSUMER}\n" in printed
    assert f" GROUP:          {'n' * 249}\n" in printed


def test_pipes_get_one_line_per_row(shown: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal the width of a row has no limit."""
    columns, row = TABLES["group_views.describe"]
    monkeypatch.setattr(Terminal, "isatty", lambda _terminal: False)
    printed = shown(60, columns, [row, ("n" * 249, *row[1:])]).splitlines()
    assert [len(line.split()) for line in printed] == [0, 10, 1, 10, 10, 0]


def test_control_characters_are_escaped(shown: Callable[..., str]) -> None:
    """A name cannot move the cursor, and cannot break a row."""
    printed = shown(80, ("GROUP", "KIND"), [("a\033[2Jb\nc", "consumer")])
    assert r"a\x1b[2Jb\nc   consumer" in printed


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_unencodable_cells_are_escaped(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    """Characters that the output's encoding lacks are escaped in tables, and in JSON as JSON escapes them."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding, errors="strict"))
    rendering.print_table(("GROUP", "KIND"), [("注文-ü", "consumer")])
    rendering.print_json({"group": "注文-ü"})
    sys.stdout.flush()
    table, _, document = raw.getvalue().decode(encoding).partition("{")
    assert r"\u6ce8\u6587-" in table
    assert json.loads("{" + document) == {"group": "注文-ü"}
