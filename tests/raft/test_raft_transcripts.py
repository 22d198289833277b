"""Golden transcripts: what the core does, message by message.

A file whose name starts with a number, and perhaps a letter, plays that scenario of docs/internals/raft.md.
`pytest tests/raft --rewrite-transcripts` writes what they print now; then read the diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import raft_transcript


def of_file(file: Path) -> object:
    """The test's parameter, with the scenario's mark if the file's name has one."""
    story = file.stem.split("_")[0].lstrip("0")
    return pytest.param(file, id=file.stem, marks=[pytest.mark.scenario(story)] if story[:1].isdigit() else [])


FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("file", [of_file(file) for file in FILES])
def test_the_core_does_what_the_transcript_says(file: Path, rewrite_transcripts: bool) -> None:
    expected = file.read_text()
    printed = raft_transcript.run(expected)
    if rewrite_transcripts:
        file.write_text(printed)
    assert printed == (printed if rewrite_transcripts else expected)
