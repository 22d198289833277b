"""Randomness for the tests of Kafka's protocol: a failing test prints its seed."""

from __future__ import annotations

import os
from random import Random

import pytest


@pytest.fixture
def random() -> Random:
    seed = int.from_bytes(os.urandom(4), "little")
    print(f"random seed {seed}")
    return Random(seed)
