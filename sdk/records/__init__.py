"""Records and batches as bytes and Arrow: partitioning, encoding, decoding.

May import: `sdk` itself.

- ``partitioner``: chooses the partition of a record.
- ``murmur2``: Kafka's hash of a key.
- ``arrow_partitioner``: the same for all keys of a table at once, by Arrow's kernels.
- ``record_batch``: record batches between Python, Arrow and bytes.
- ``produce_request``: a hand-written encoder of produce requests, which saves copies of batches.
- ``fetch_answer``: a hand-written decoder of fetch responses, which saves copies too.
- ``fetched``: fetched batches before they are returned to the application.
"""
