"""The former name of `quorumlog.local`, for programs that import it."""

from typing import Any

import quorumlog.local

__all__ = quorumlog.local.__all__


def __getattr__(name: str) -> Any:
    return getattr(quorumlog.local, name)
