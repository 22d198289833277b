"""The admin client: topics, partitions, consumer groups, producer names, the cluster.

May import: `sdk` itself, `runtime`, `records`, `cluster`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorumlog.sdk.admin.admin import Admin

__all__ = ["Admin"]


def __getattr__(name: str) -> Any:
    # Loaded when first used: whoever needs only the options must not wait for all of the client.
    if name == "Admin":
        from quorumlog.sdk.admin.admin import Admin

        return Admin
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
