"""The wire contract: generated messages and services, the byte layout of entries (`entry`), how large a batch
may become (`decoded_size`), and what a request may name (`request_limits`)."""
