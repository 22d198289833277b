"""What is left of moves of replicas while a command waits for their end: how many bytes, and what they wait for.

- ``bytes_left``: how much moves still have to copy.
- ``stalls``: what stalled moves wait for, on stderr.
- ``returned_empty``: nodes that returned with an empty data directory, and the command for each.

May import: `cli` itself, and everything below.
"""
