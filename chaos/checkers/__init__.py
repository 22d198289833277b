"""Histories of what clients did and saw, and the checkers that give a verdict on them.

May import: no other room of `chaos`.

- ``history``: what clients did and saw, one record per operation.
- ``checkers``: judges such a history.
- ``group_history``: what members of consumer groups were told and did.
- ``group_checkers``: judges that.
"""
