"""The wire contract: generated messages and services, and the byte layout of entries (`entry`)."""
