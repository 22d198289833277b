"""One log of records: admission, acknowledgements, producers, retention, compaction, snapshots.

May import: `hosting`, `metadata`.
"""
