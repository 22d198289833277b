"""The consumer: fetches, keeps positions, and takes its part in a consumer group.

May import: `sdk` itself, `runtime`, `records`, `cluster`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorumlog.sdk.consumer.consumer import Consumer

__all__ = ["Consumer"]


def __getattr__(name: str) -> Any:
    # Loaded when first used: whoever needs only the options must not wait for all of the client.
    if name == "Consumer":
        from quorumlog.sdk.consumer.consumer import Consumer

        return Consumer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
