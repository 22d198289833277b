"""Filters as they are typed, and records as they are shown: nothing is evaluated, nothing is rounded, nothing draws."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pyarrow as pa
import pytest

from quorumlog.console.records.conditions import LONGEST, MOST, FilterError, parse_filter
from quorumlog.console.records.shown import RowFormat, shown
from quorumlog.sdk.records.fetched import CONSUMED_SCHEMA

LARGEST = 2**63 - 1
ROWS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (b"anna", b'{"pounds": 3, "fruit": "plums", "inner": {"a/b": [1, {"~": true}]}}', [("trace", b"ab")]),
    (b"ben", b'{"pounds": 12.50, "fruit": "pears"}', [("trace", b"cd"), ("trace", b"ab")]),
    (b"clara", b"plain text about plums", []),
    (None, b"\xff\xfe\x00", [("empty", None)]),
    (b"dina", None, []),
    (b"9007199254740993", b"%d" % LARGEST, []),
]


def rows_that_fit(text: str) -> list[int]:
    table = pa.Table.from_pylist(
        [
            {
                "topic": "t",
                "partition": 0,
                "offset": number,
                "timestamp": 0,
                "key": key,
                "value": value,
                "headers": [{"key": name, "value": content} for name, content in headers],
            }
            for number, (key, value, headers) in enumerate(ROWS)
        ],
        CONSUMED_SCHEMA,
    )
    offsets: list[int] = parse_filter(text).fitting(table).column("offset").to_pylist()
    return offsets


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [0, 1, 2, 3, 4, 5]),
        ("  ", [0, 1, 2, 3, 4, 5]),
        ("key = anna", [0]),
        ('key="anna"', [0]),
        ("key != anna", [1, 2, 3, 4, 5]),
        ("key ≠ anna", [1, 2, 3, 4, 5]),
        ("value contains plums", [0, 2]),
        ('value contains "text about"', [2]),
        ("value ~ ^plain", [2]),
        (r'value ~ "^\{.*\}$"', [0, 1]),
        ("key < c", [0, 1, 5]),
        ("key > 9007199254740992", [5]),
        ("key > 9007199254740993", []),
        (f"value = {LARGEST}", [5]),
        ("value/pounds > 3", [1]),
        ("value/pounds = 12.5", [1]),
        ("value/pounds < 100", [0, 1]),
        ("value/fruit = plums AND key = anna", [0]),
        ("value/fruit = plums and key = ben", []),
        ("value/inner/a~1b/0 = 1", [0]),
        ("value/inner/a~1b/1/~0 = true", [0]),
        ("value/inner/a~1b/7 = 1", []),
        ("value/nothing = 1", []),
        ("header.trace = ab", [0, 1]),
        ("header.trace contains c", [1]),
        ("header.empty = x", []),
        ('value ~ "[^[:ascii:]]"', [3]),
    ],
)
def test_what_fits(text: str, expected: list[int]) -> None:
    assert rows_that_fit(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "anna", "key anna", "key =", "key = anna or key = ben", "key = anna key = ben", "offset = 3", "header = 3",
        'key = "anna', "value ~ (", "value ~ [", "__import__('os')", "key = anna and", "value/ pounds = 3",
        "x" * (LONGEST + 1), " and ".join(["key = a"] * (MOST + 1)), "\x00", "key\n=\n", "header. = 3",
    ],
)  # fmt: skip
def test_what_is_no_filter_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(FilterError) as refused:
        parse_filter(text)
    assert len(str(refused.value)) < 250


def test_a_filter_that_breaks_off_says_so() -> None:
    with pytest.raises(FilterError, match="expected a condition after 'and'"):
        parse_filter("key = anna and")


def test_whatever_is_typed_is_a_filter_or_refused() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    words = [
        "key",
        "value",
        "header.x",
        "/a",
        "=",
        "!=",
        "<",
        "~",
        "contains",
        '"',
        "\\",
        "and",
        " ",
        "(",
        "*",
        "é",
        "\0",
        "1e99",
    ]
    for _ in range(3_000):
        text = "".join(chance.choice(words) + chance.choice(("", " ")) for _ in range(chance.randrange(12)))
        try:
            rows_that_fit(text)
        except FilterError:
            continue


def test_an_expression_that_backtracks_elsewhere_takes_no_time() -> None:
    wanted = parse_filter('value ~ "(a+)+$"')
    row = {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp": 0,
        "key": None,
        "value": b"a" * 100_000 + b"!",
        "headers": [],
    }
    begun_s = time.monotonic()
    assert wanted.fitting(pa.Table.from_pylist([row], CONSUMED_SCHEMA)).num_rows == 0
    assert time.monotonic() - begun_s < 5


def test_a_filter_that_names_the_key_says_which() -> None:
    assert parse_filter("value contains x and key = anna").key() == b"anna"
    assert parse_filter("key != anna").key() is None
    assert parse_filter("key/a = anna").key() is None
    assert not parse_filter("key contains a").looks_at_values
    assert parse_filter("header.a = b").looks_at_values


@pytest.mark.parametrize(
    ("content", "kind", "text"),
    [
        (None, "null", ""),
        (b"", "text", ""),
        (b"plain", "text", "plain"),
        (b"42", "text", "42"),
        ("größe 🦆".encode(), "text", "größe 🦆"),
        (b"\xff\xfe", "bytes", "ff fe"),
        (b"<script>alert(1)</script>", "text", "<script>alert(1)</script>"),
        ("a\u202etxt.exe\x1b[2J\u0000".encode(), "text", "a\\u202etxt.exe\\x1b[2J\\x00"),
        (b'{"a":[],"b":{}}', "json", '{\n  "a": [],\n  "b": {}\n}'),
        (
            b'{"n":9223372036854775807,"f":1.10,"e":1e400}',
            "json",
            '{\n  "n": 9223372036854775807,\n  "f": 1.10,\n  "e": 1e400\n}',
        ),
        (b'["x, y: {z}"]', "json", '[\n  "x, y: {z}"\n]'),
        (b"{not json}", "text", "{not json}"),
    ],
)
def test_what_is_shown(content: bytes | None, kind: str, text: str) -> None:
    thing = shown(content, 300)
    assert (thing["kind"], thing["text"], thing["cut"]) == (kind, text, False)


def test_what_is_long_is_cut_and_says_how_long_it_is() -> None:
    thing = shown("ä".encode() * 1_000_000, 301)
    assert (thing["kind"], thing["text"], thing["size"], thing["cut"]) == ("text", "ä" * 150, 2_000_000, True)
    thing = shown(b"\xff" * 1000, 300)
    assert thing["kind"] == "bytes" and thing["cut"] is True and len(str(thing["text"])) < 300


@pytest.mark.parametrize("bomb", ["[" * 100_000, '{"a":' * 50_000, "[" + "9" * 10_000 + "]", "[" * 90 + "]" * 90])
def test_what_is_nested_too_deep_stays_as_it_is(bomb: str) -> None:
    begun_s = time.monotonic()
    assert shown(bomb.encode(), 1 << 20)["size"] == len(bomb)
    assert time.monotonic() - begun_s < 5


def test_laid_out_json_is_the_same_json() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)

    def value(depth: int) -> Any:
        kinds = [
            lambda: chance.randrange(-9, 2**63),
            lambda: chance.choice(['"', "\\", "a, b", "{", "é\n"]),
            lambda: None,
        ]
        if depth < 4:
            kinds += [
                lambda: [value(depth + 1) for _ in range(3)],
                lambda: {str(n): value(depth + 1) for n in range(3)},
            ]
        return chance.choice(kinds)()

    for _ in range(300):
        wanted = [value(0)]
        assert json.loads(str(shown(json.dumps(wanted).encode(), 1 << 20)["text"])) == wanted


def test_hidden_values_leave_keys_and_sizes() -> None:
    row = {
        "partition": 0,
        "offset": LARGEST,
        "timestamp": 5,
        "key": b"k",
        "value": b"secret",
        "headers": [{"key": "h", "value": b"x"}],
    }
    (thing,) = RowFormat(300, hide_values=True).rows([row])
    assert "secret" not in json.dumps(thing)
    assert isinstance(thing, dict)
    assert thing["offset"] == str(LARGEST) and thing["value"] == {"kind": "hidden", "text": "", "size": 6, "cut": False}
