"""Ports in a row, for nodes that are given the first one."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack

#: Below those that the kernel gives to connections (32,768 and up), of which one may come between the look and the use.
LOWEST, HIGHEST = 10_000, 32_000
#: Of these each process has its own, so that tests that run beside each other do not find the same ones free.
STRETCH = 40


def free_base_port(count: int) -> int:
    """A port that is free together with those after it, so many in all."""
    begin = LOWEST + os.getpid() * STRETCH % (HIGHEST - LOWEST)
    for port in (*range(begin, HIGHEST - count, count), *range(LOWEST, begin, count)):
        with ExitStack() as probes:
            try:
                for offset in range(count):
                    probes.enter_context(socket.socket()).bind(("127.0.0.1", port + offset))
            except OSError:
                continue
            return port
    raise AssertionError(f"no {count} free ports in a row")
