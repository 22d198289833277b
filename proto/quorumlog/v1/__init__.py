"""The wire contract, and the bytes that clients and nodes share.

Beside the generated messages and services (`*_pb2`):

- `entry`: the byte layout of entries.
- `payload`: the payload of a record batch: its columns as bytes and back.
- `decoded_size`: how large a batch may become when it is decompressed.
- `columns`: the columns that readers get, whoever wrote the batch.
- `request_limits`: how many things one request may name.
- `topic_names`: topic names that no client can create.
- `splicing`: Protobuf's wire format for messages that are put together without copying their bytes again.
- `kafka_batch`, `kafka_records`: batches of Kafka's clients, and the records in them; `kafka_kernels`: the same with C.
- `kafka_compression`: the codecs of such batches.
- `kafka_produced`: such batches checked record by record before a node accepts them.
- `kafka_entry`: how entries keep such batches; `kafka_translation`: what other readers get of them.
- `consumer_protocol`: subscriptions and assignments of Kafka's classic consumer groups.
- `scram`: SCRAM-SHA-256, which clients and nodes agree on; `saslprep`: passwords normalised for it.

May import: nothing else of quorumlog.
"""
