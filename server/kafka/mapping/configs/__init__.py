"""Configurations as Kafka's clients see and change them: of topics, and of nodes, which are only read.

``config_keys`` has what Kafka's keys mean here. As all of ``mapping``, it imports ``codec``, ``v1`` and its neighbours.
"""
