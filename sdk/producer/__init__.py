"""The producer: accumulates records into batches, and sends them in order.

May import: `sdk` itself, `runtime`, `records`, `cluster`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorumlog.sdk.producer.producer import Producer

__all__ = ["Producer"]


def __getattr__(name: str) -> Any:
    # Loaded when first used: whoever needs only the options must not wait for all of the client.
    if name == "Producer":
        from quorumlog.sdk.producer.producer import Producer

        return Producer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
