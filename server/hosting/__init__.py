"""Many Raft groups in one node: rounds, leases, queues to the peers, snapshots, read index.

May import: `server` itself.

- `raft_host`: the Raft groups of a node: their rounds, their shared transaction, their timers.
- `durable_raft_group`: builds a Raft replica from its durable state.
- `sealing`: builds sealed entries.
- `partition_replica`: the interface of all state machines of partitions.
- `peer_queues`: outgoing frames per peer, and the limit on frames in flight.
- `leases`: liveness of pairs of nodes, which lets idle groups sleep.
- `read_index`: the heartbeat rounds that confirm linearizable reads.
- `snapshots`: entry point for all snapshots of a node.
- `snapshot_sender`, `snapshot_receiver`: transfers between nodes, slice by slice.
- `checkpoint_writer`: writes snapshots of a node's own state machines.
- `replication_throttle`: limits the rate of log copies to replicas that are being added.
- `entry_repair`: fetches damaged entries from a peer and writes them back.
"""
