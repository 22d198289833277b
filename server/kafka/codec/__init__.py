"""Kafka's messages, as bytes and as objects.

``apis`` lists all that there are; the modules of requests and responses are written by ``tools/kafka_codec.py``, those
about consumer groups in the room ``groups``. ``primitives`` has what they are made of, and ``decode`` and ``encode``;
``headers`` what stands before a message.
Imports nothing of the project but itself.
"""
