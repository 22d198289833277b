"""The wire contract: generated messages and services, the byte layout of entries (`entry`), and what a request may
name (`request_limits`)."""
