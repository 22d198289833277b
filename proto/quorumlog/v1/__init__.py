"""The wire contract: generated messages and services, the byte layout of entries (`entry`), how large a batch
may become (`decoded_size`), what a request may name (`request_limits`), and the batches of Kafka's clients
(`kafka_batch`, `kafka_records`)."""
