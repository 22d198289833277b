"""One log of records: admission, acknowledgements, producers, retention, compaction, snapshots.

May import: `hosting`, `metadata`, `server` itself.

- `partition`: the state machine: appends, the high watermark, reads, acknowledgements.
- `batch_admission`: checks of a produce request and of its batches before anything is appended.
- `acknowledgements`: produce calls, and what each still waits for.
- `batch_reading`: reads the batches of a partition out of its Raft log.
- `commands`: what a leader proposes so that all replicas do it at the same place in the log.
- `producer_state`: what is known of one idempotent producer.
- `producer_table`: all producers of a partition, applied and not yet committed.
- `epoch_digests`: what is kept of an epoch that can be replayed.
- `forgotten_producers`: has partitions forget producers that are silent or deleted.
- `time_lookup`: the first offset at or after a time.
- `epoch_lookup`: where a leader epoch ends, by which clients notice that their position is gone.
- `restoration`: the restore that a partition comes from, or is in.
- `restore_steps`: what a restore brings, checked against where the log is.
- `producer_records`: the producers of a partition, as a backup holds them.
- `refusals`: what clients hear when a partition refuses them.
- `retention`: where a log should start, by bytes and by time.
- `checkpoints`: gives up the entries before the log start.
- `compaction_proposals`: up to where a leader wants its logs compacted.
- `compaction_state`: the points of compaction, and how far a replica has got.
- `compaction_runner`: carries out the points on this node, in the background.
- `compaction_pass`: the pass itself, with Arrow.
- `content_hash`: a hash of records that does not depend on how they are cut into batches.
- `compacted_log`: what a partition's snapshot holds before the state: compacted batches.
- `state_slices`: the state in a partition's snapshot, cut into slices.
- `witness`: a voter that keeps only index, term and hash of each entry.
"""
