"""Golden transcripts: what the core does, message by message, in the scenarios of the design's list.

`pytest tests/raft --rewrite-transcripts` writes what they print now; then read the diff.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import raft_transcript

FILES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_core_does_what_the_transcript_says(file: Path, rewrite_transcripts: bool) -> None:
    expected = file.read_text()
    printed = raft_transcript.run(expected)
    if rewrite_transcripts:
        file.write_text(printed)
    assert printed == (printed if rewrite_transcripts else expected)
