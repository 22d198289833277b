"""Does something between any two instructions of a call, as a signal handler may."""

from __future__ import annotations

import dis
import gc
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

#: More instructions than any of the calls has.
MOST_STEPS = 20_000
#: Nothing can come between the end of a call and its caller: Python looks for signals elsewhere.
_RETURNS = {dis.opmap[name] for name in ("RETURN_VALUE", "RETURN_CONST") if name in dis.opmap}


class SoftTimeLimit(Exception):
    """Raised by the handler. An Exception, as Celery's is: code that expects only KeyboardInterrupt fails."""


def at_step(step: int, call: Callable[[], object], act: Callable[[], None], *, lines: bool = False) -> bool:
    """Makes a call, and acts before its n-th instruction within the project's own code.

    Arguments:
        lines: count lines instead of instructions.

    Returns:
        Whether the call has so many.
    """
    left = step
    outermost = sys._getframe()

    def local(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if event != ("line" if lines else "opcode"):
            return local
        returns = frame.f_code.co_code[frame.f_lasti] in _RETURNS
        if returns and frame.f_back is not None and frame.f_back.f_back is outermost:
            return local
        left -= 1
        if left == 0:
            act()
        return local

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if left <= 0 or not frame.f_globals.get("__name__", "").startswith("quorumlog."):
            return None
        frame.f_trace_opcodes = not lines
        return local

    former = sys.gettrace()
    gc.disable()  # What is collected during the call is another object's business.
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(former)
        gc.enable()
    return left <= 0


def interrupted(step: int, call: Callable[[], object], *, lines: bool = False) -> bool:
    """Makes a call that a handler interrupts by an exception before its n-th instruction; whether it has so many."""

    def strike() -> None:
        raise SoftTimeLimit

    try:
        return at_step(step, call, strike, lines=lines)
    except SoftTimeLimit:
        return True


def steps(every: int = 1) -> Iterator[int]:
    """The numbers of a call's instructions; the caller stops at the first that the call does not have."""
    yield from range(1, MOST_STEPS, every)
    raise AssertionError(f"the call has more than {MOST_STEPS} instructions")
