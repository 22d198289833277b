"""Records and batches as bytes and Arrow: which partition a record goes to, encoding, decoding.

May import: `sdk` itself.

- ``partitioner``: which partition a record goes to when the caller does not say.
- ``murmur2``: Kafka's hash of a key.
- ``arrow_partitioner``: the same for all keys of a table at once, by Arrow's kernels.
- ``record_batch``: record batches between Python, Arrow and bytes.
- ``produce_request``: a request to produce, put together by hand, which saves copies of its batches.
- ``fetch_answer``: an answer to a fetch, taken apart by hand, which saves copies too.
- ``fetched``: fetched batches on their way to the application.
"""
