"""Many Raft groups in one node: the rounds in which they run, leases, queues to the peers, snapshots, read index.

May import: `server` itself.

- `raft_host`: the Raft groups of a node: their rounds, their one transaction, their timers.
- `durable_raft_group`: makes a Raft replica from what is durable of it.
- `sealing`: builds sealed entries.
- `partition_replica`: what all state machines of partitions have in common.
- `peer_queues`: what waits to be sent to each peer, and how much may be in flight.
- `leases`: liveness of pairs of nodes, on which idle groups sleep.
- `read_index`: the heartbeat rounds that confirm linearizable reads.
- `snapshots`: all of a node that has to do with snapshots.
- `snapshot_sender`, `snapshot_receiver`: transfers between nodes, slice by slice.
- `checkpoint_writer`: writes snapshots of a node's own state machines.
- `replication_throttle`: how fast copies of logs leave a node, for replicas that are being added.
- `entry_repair`: fetches damaged entries again from a peer, and writes them back.
"""
