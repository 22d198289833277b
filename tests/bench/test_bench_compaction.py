"""The benchmark of compaction: a pass over something takes time, and leaves less for the next."""

import pytest

from bench.compaction import main, pass_rates


def test_passes_have_a_rate() -> None:
    first, second = pass_rates(1)
    assert first > 0 and second > 0


def test_a_size_out_of_range_is_refused() -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--megabytes", "0"])
