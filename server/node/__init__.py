"""The step: one synchronous state machine that is the node, from formation to the hand-over at a stop.

May import: all rooms above it, from `hosting` to `requests`.
"""
