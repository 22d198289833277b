"""The costs of the port for Kafka clients beside the SDK's own protocol, on the same nodes with the same records.

- ``command``: ``python -m bench kafka-port``.
- ``jobs``: one load in its own process; ``raw_client``: below any client library.
- ``budget``: the figures that the port must reach.

May import: `bench`, and everything below.
"""
