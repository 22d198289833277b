"""The wire contract: generated messages and services, the byte layout of entries (`entry`), how large a batch
may become (`decoded_size`), what a request may name (`request_limits`), the batches of Kafka's clients (`kafka_batch`,
`kafka_records`, `kafka_kernels`), how entries keep them (`kafka_entry`), and what readers make of either kind
(`columns`, `kafka_translation`)."""
