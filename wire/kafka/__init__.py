"""The batches of Kafka's clients.

- `batch`: the header of a batch, and its layout.
- `compression`: the codecs of batches.
- `records`: the records in a batch; `kernels`: the same by Arrow's kernels, for many records at once.
- `produced`: batches checked record by record before a node accepts them.
- `entry`: how entries keep such batches; `translation`: what other readers get of them.
- `consumer_protocol`: subscriptions and assignments of Kafka's classic consumer groups.

May import: `wire`.
"""
