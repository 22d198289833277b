"""What must be: plain models of what committed logs decide.

May import: no other room of `chaos`.

- ``committed_partition``: what the log of one partition decides: records, where it starts, who may write what.
- ``records``: what the simulation's records look like inside batches.
- ``compacted_content``: what compaction must leave of a log.
- ``coordinator_model``: what the log of one coordinator of consumer groups decides.
- ``classic_model``: what it decides of one classic group.
- ``coordinator_models``: the models of all coordinators of a cluster.
- ``members_heard``: what members have told nodes, against which timers are judged.
"""
