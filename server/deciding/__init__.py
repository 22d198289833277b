"""Shared parts of coordinators: state machines over partitions of an internal topic, whose leaders decide for clients.

The leader decides, the log holds the results, and every replica applies them. A kind of coordinator adds its table, its
drafts and its leader: consumer groups in `groups/`.

May import: `hosting`, `metadata`, `access`.

The modules, in the order in which a call passes them:

- `coordinator_kind`: a kind of coordinator: its topic, the names that its clients use, its table and its log entries.
- `dependencies`: objects that the node shares with its coordinators.
- `finder`: maps a key to its coordinator; answers FindCoordinators, and has the coordinators created.
- `led_coordinators`: the coordinators that this node leads: starts their terms, finds the one that keeps a key.
- `stall_aware_clock`: the clock of leaders, which stops while the node itself is stalled.
- `pending_answers`: answers due to clients: each is sent once, by its deadline.
- `decision_queue`: the calls of one term: queued, decided together, one decision at a time, answered when applied.
- `coordinator_replica`: the replica: proposes commands, applies them, takes snapshots.

Not on the path of a call:

- `transaction_participants`: participants of transactions, for transaction coordinators and for what takes part.
- `enlistment_queue`: batches or commits that wait until their participant is enlisted.
- `connection_fence`: refuses late requests of transactional producers that keep their epoch.
"""
