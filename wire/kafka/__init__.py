"""The batches of Kafka's clients.

- `batch`: the header of a batch, and its layout.
- `compression`: the codecs of batches.
- `records`: the records in a batch; `kernels`: the same by Arrow's kernels, for many records at once.
- `produced`: batches checked record by record before a node accepts them.
- `entry`: such batches in entries; `translation`: entries of any kind as batches for Kafka's consumers.
- `control`: markers, which end transactions, as Kafka's control batches.
- `consumer_protocol`: subscriptions and assignments of Kafka's classic consumer groups.

May import: `wire`.
"""
