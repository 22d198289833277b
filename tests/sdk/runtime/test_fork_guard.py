"""Clients notice that their process was forked."""

from __future__ import annotations

import os

import pytest

from quorumlog.sdk.errors import ForkedClientError
from quorumlog.sdk.runtime.fork import ForkGuard

REFUSED = 7


# Python 3.12 and later warn of every fork in a process with threads.
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_guards_notice_a_fork() -> None:
    guard = ForkGuard("Producer")
    child = os.fork()
    if child == 0:
        try:
            ForkGuard("Producer").check()  # One that was made in the child.
            guard.check()
        except ForkedClientError:
            os._exit(1 if guard.same_process else REFUSED)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == REFUSED
    guard.check()
