"""The commands of certificates.

- ``commands``: ``quorumlog certs``: makes and shows authorities and certificates.
- ``revocations``: ``quorumlog certs revoke``, ``restore`` and ``revocations``.

May import: `cli` itself, and everything below.
"""
