"""One module for each kind of client request.

May import: all rooms above it, from `hosting` to `broker`.
"""
