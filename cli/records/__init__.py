"""``quorumlog produce`` and ``consume``: lines become records, and records become lines.

- ``produce``: ``quorumlog produce``; ``consume``: ``quorumlog consume``; ``explain``: ``quorumlog explain``.
- ``reading_start``: where ``consume`` begins.
- ``record_text``: records as lines.

May import: `cli` itself, and everything below.
"""
