"""Plain models of the decisions in committed logs.

May import: no other folder of `chaos`.

- ``committed_partition``: decisions in the log of one partition: records, log start, valid writers.
- ``committed_transactions``: what is open in that log, and which batches count.
- ``records``: the simulation's records inside batches.
- ``compacted_content``: the required result of compaction.
- ``coordinator_model``: decisions in the log of one coordinator of consumer groups.
- ``pending_model``: its decisions on the offsets of one consumer group in transactions.
- ``classic_model``: its decisions for one classic group.
- ``coordinator_models``: the models of all coordinators of a cluster.
- ``transaction_models``: the rules of transaction coordinators, and the outcome of every transaction.
- ``members_heard``: members' requests to nodes, against which timers are judged.
"""
