"""Many Raft groups in one node: the rounds in which they run, leases, queues to the peers, snapshots, read index.

May import: `server` itself.
"""
