"""Kafka's messages, as bytes and as objects.

``apis`` lists all that there are; the modules of requests and responses are written by ``tools/kafka_codec.py``, those
about consumer groups in the package ``groups``. ``primitives`` has their parts, and ``decode`` and ``encode``;
``headers`` the part before a message.
Imports nothing of the project but itself.
"""
