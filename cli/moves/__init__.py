"""Progress of replica moves, for commands that wait for them: bytes left, and causes of stalls.

- ``bytes_left``: the data that moves still have to copy.
- ``stalls``: what stalled moves wait for, on stderr.
- ``returned_empty``: nodes that returned with an empty data directory, and the command for each.

May import: `cli` itself, and everything below.
"""
