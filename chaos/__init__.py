"""Fault injection into real node processes, with verdicts: ``quorumlog chaos``.

- ``checkers``: histories of client operations, and checkers that judge them; `simulator/` uses them too.
- ``processes``: scenarios on real node processes.
- ``hostile``: clients that send invalid and malicious requests to three real nodes.

May import: everything below. Each folder lists the others that it may use.
"""
