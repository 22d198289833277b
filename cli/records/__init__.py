"""``quorumlog produce`` and ``consume``: lines become records, and records become lines.

- ``produce``: ``quorumlog produce``; ``consume``: ``quorumlog consume``; ``explain``: ``quorumlog explain``.
- ``reading_start``: the start position of ``consume``.
- ``record_text``: records as lines.

May import: `cli` itself, and everything below.
"""
