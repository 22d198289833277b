"""Histories of client operations, and the checkers that judge them.

May import: no other folder of `chaos`.

- ``history``: operations of clients and their results, one record per operation.
- ``checkers``: judges such a history.
- ``group_history``: operations of members of consumer groups.
- ``group_checkers``: judges such a history.
- ``transfer_checkers``: judges transfers between accounts in transactions, and writes them as a history for Elle.
"""
