"""Backups of a running cluster, and restores into a fresh one.

A backup is a set of files in a directory, or in any storage that fsspec supports. Its one ``manifest.json`` is written
last and lists all other files with size and hash. Files that it does not list are ignored.

- `sizes`: sizes of the pieces of a backup.
- `store`: storage: a directory, or object storage through fsspec.
- `manifest`: the content of a backup, as JSON.
- `segments`: files of stored batches, written, verified and read without decoding records.
- `concurrency`: works on several partitions at once.
- `partition_copy`: copies one partition from its leader.
- `commit_hold`: has commits of transactions held while the partitions are described.
- `creation`: creates a backup, or adds new data to it.
- `verification`: reads a whole backup, and reports its problems.
- `partition_restore`: restores one partition from a backup.
- `restoration`: restores topics, records, producers and groups in a fresh cluster.
- `commands`: the three operations as calls that do not need asyncio.

May import: `runtime`, `records`, `cluster`, `admin`, and `sdk` itself.
"""
