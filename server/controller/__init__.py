"""What the active controller decides: creation, growth, placement, liveness and moves; the replica of the metadata.

May import: `hosting`, `metadata`.
"""
