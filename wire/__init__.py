"""The bytes that clients and nodes share.

- `entry`: the byte layout of entries.
- `payload`: the payload of a record batch: its columns as bytes and back.
- `columns`: columns of batches of either format.
- `decoded_size`: how large a batch may become when it is decompressed.
- `splicing`: Protobuf's wire format for messages that are put together without copying their bytes again.
- `request_limits`: how many things one request may name.
- `topic_names`: topic names that no client can create.
- `scram`: SCRAM-SHA-256, which clients and nodes agree on; `saslprep`: passwords normalised for it.
- `kafka/`: the batches of Kafka's clients.

May import: nothing else of quorumlog.
"""
