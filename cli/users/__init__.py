"""``quorumlog users`` and ``quorumlog quotas``: users who sign in by password, and how much users may do.

- ``commands``: ``quorumlog users``.
- ``quotas``: ``quorumlog quotas``.

May import: `cli` itself, and everything below.
"""
