"""Backup commands.

- `commands`: ``quorumlog backup``: takes backups, verifies and restores them.

May import: `cli` itself, and everything below.
"""
