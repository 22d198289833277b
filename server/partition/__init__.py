"""One log of records: admission, acknowledgements, producers, retention, compaction, snapshots.

May import: `hosting`, `metadata`, `server` itself.

- `partition`: the state machine: appends, the high watermark, reads, acknowledgements.
- `batch_admission`: checks of a produce request and of its batches before anything is appended.
- `acknowledgements`: produce calls, and the conditions that each still waits for.
- `batch_reading`: reads the batches of a partition out of its Raft log.
- `commands`: commands that a leader proposes so that all replicas apply them at the same place in the log.
- `producer_state`: the state of one idempotent producer.
- `producer_table`: all producers of a partition, applied and not yet committed.
- `open_transactions`: the transactions of a partition, applied and not yet committed.
- `aborted_ranges`: the aborted ones, as ranges of offsets.
- `transaction_steps`: opens and ends transactions, for their coordinator.
- `epoch_digests`: digests of the batches of a replayable epoch.
- `forgotten_producers`: makes partitions forget producers that are inactive or deleted.
- `time_lookup`: the first offset at or after a time.
- `epoch_lookup`: the end of a leader epoch, by which clients detect log truncation.
- `restoration`: the restore that created a partition, or is in progress.
- `restore_steps`: the steps of a restore, checked against the state of the log.
- `producer_records`: the producers of a partition in a backup.
- `refusals`: errors for requests that a partition refuses.
- `batch_ages`: how long ago a batch was appended or is dated.
- `retention`: the log start offset by bytes and by time.
- `checkpoints`: removes the entries before the log start.
- `compaction_proposals`: proposes compaction points as the leader.
- `compaction_state`: the compaction points, and the progress of a replica.
- `compaction_runner`: carries the points out on this node, in the background.
- `compaction_pass`: the pass itself, with Arrow.
- `content_hash`: a hash of records that does not depend on their division into batches.
- `compacted_log`: the compacted batches in a partition's snapshot, which precede the state.
- `state_slices`: the state in a partition's snapshot, cut into slices.
- `witness`: a voter that stores only index, term and hash of each entry.
"""
