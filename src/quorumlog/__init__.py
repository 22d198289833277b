"""A Raft-replicated log store with Kafka's model, for Python and Spark. Start with `quorumlog.sdk`.

`pure` runs the Python sources where compiled modules are installed beside them.
"""

from __future__ import annotations

import os

if os.environ.get("QUORUMLOG_PURE") == "1":
    # Before anything else of the package is imported: compiled modules are passed over.
    from quorumlog.pure import use_sources

    use_sources()

__all__ = ["__version__"]

__version__: str
"""The installed distribution's version."""


def __getattr__(name: str) -> str:
    # Looked up when first asked for: reading the distribution's metadata costs a command its quick start.
    if name == "__version__":
        from importlib.metadata import version

        return version("quorumlog")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
