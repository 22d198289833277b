"""Backups of a running cluster, and restores into a fresh one.

A backup is a place with files: a directory, or whatever fsspec reaches. Its one ``manifest.json`` is written last and
names all the others by size and hash. What it does not name does not count.

- `sizes`: how large the pieces of a backup are.
- `store`: the place: a directory, or object storage through fsspec.
- `manifest`: what a backup holds, as JSON.
- `segments`: files of stored batches, cut, checked and read without looking at a record.
- `concurrency`: works on a few partitions at once.
- `partition_copy`: one partition's part of a backup, taken from its leader.
- `creation`: takes a backup, or adds to it what is new.
- `verification`: reads a whole backup, and says what is wrong with it.
- `partition_restore`: one partition, made again from a backup.
- `restoration`: makes topics, records, producers and groups again in a fresh cluster.
- `commands`: the three as calls that do not need asyncio.

May import: `runtime`, `records`, `cluster`, `admin`, and `sdk` itself.
"""
