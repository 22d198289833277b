"""``quorumlog version``: the version of the package, and whether its core is compiled."""

from __future__ import annotations

from quorumlog.pure import version_line

EXAMPLE = "Example: quorumlog version"


def version() -> None:
    """Prints the version, like --version."""
    print(version_line())
