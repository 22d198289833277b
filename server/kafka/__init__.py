"""Kafka's wire protocol: the messages of Kafka's own clients, and connections on which they arrive."""
