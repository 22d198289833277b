"""Faults and verdicts on real node processes: ``quorumlog chaos``.

- ``checkers``: histories of what clients did, and verdicts on them; `simulator/` uses them too.
- ``processes``: scenarios on real node processes.
- ``hostile``: clients that send invalid and malicious requests to three real nodes.

May import: everything below. Each room says which others it may use.
"""
