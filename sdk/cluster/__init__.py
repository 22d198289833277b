"""The cluster as a client sees it: connections, metadata, leaders, coordinators.

May import: `sdk` itself, `runtime`, `records`.
"""
