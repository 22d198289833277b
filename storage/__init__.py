"""Durable state: LMDB behind one interface, a single storage thread, and checks on everything that is read.

The contract, and the state as a whole:

- `interface`: storage as a node sees it, for LMDB and for the simulator's disk.
- `transaction`: what is made durable at once: one transaction for all Raft groups of a round, one fsync.
- `storage`: every Raft group's log, hard state, snapshot and table in one LMDB environment.
- `writer`: the storage thread: commits transactions in order, and sweeps garbage in between.

The layout:

- `rows`: the databases, their keys and their small rows; snapshots in slices.
- `entry_rows`: an entry's bytes in as few pages as they need.
- `batch_row`: a batch in the offset index; `batch_times`: its largest timestamp there.

Reading and writing:

- `environment`: the LMDB environment of a data directory: lock, checks before mapping, databases, format.
- `reading`: verified reads, through the engine or without it.
- `raft_group_write`: one Raft group's part of a transaction.
- `overflow_page_check`: checks rows before they are deleted, because the engine trusts their own headers.
- `garbage`: rows that no longer mean anything; `sweep`: deletes them in slices.
- `space`: used and free space, and what a failed commit means for it; `reserve`: space held back for a full disk.

Damage:

- `page_file`: the data file read page by page, without mapping it; `meta_pages`: its two meta pages.
- `opening`: the checks before a node serves; `upgrade`: repairs the offset index of an older version.
- `scrubbing`: reads everything from time to time while the node runs.
- `recheck_list`: damage found while the node ran, for the next opening.
- `synced_files`: small files beside the database that survive a loss of power.
- `crash_marker`: the signal that killed the process, for the next one.
- `quarantine`: moves damaged storage out of the way, on request; nothing is deleted.
- `verification`: verifies a whole data directory offline; `inspection`: shows what is in it.

May import: `quorumlog.v1`, and the values of `raft.types`.
"""
