"""``quorumlog users`` and ``quorumlog quotas``: users with passwords, and limits for users.

- ``commands``: ``quorumlog users``.
- ``quotas``: ``quorumlog quotas``.

May import: `cli` itself, and everything below.
"""
