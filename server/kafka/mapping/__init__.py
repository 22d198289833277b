"""What Kafka's requests mean here: each becomes the messages that gRPC would have brought, their replies its answer.

``steps`` says how a request is served without a thread or a clock; ``table`` has who serves which API. ``error_codes``
and ``topic_names`` are shared by the others, which have one module for each kind of request. Configurations have a room
of their own, ``configs``, and so has what is asked about nodes, ``administration``.
"""
