"""``quorumlog produce`` and ``consume``: lines become records, and records become lines."""
