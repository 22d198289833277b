"""Certificate commands.

- ``commands``: ``quorumlog certs``: creates and shows authorities and certificates.
- ``revocations``: ``quorumlog certs revoke``, ``restore`` and ``revocations``.

May import: `cli` itself, and everything below.
"""
