"""Metrics of the clients: ``producer.metrics()``, ``consumer.metrics()``, and bridges to monitoring systems.

Names and groups are those of Kafka's clients, in kafka-python's form: a dict of groups, each a dict of numbers.

- ``producer_metrics``, ``consumer_metrics``: counters of each client: no work per record.
- ``windows``: counters and timers as in Kafka's clients: in total, and recent.
- ``figures``: every metric with its group, name and meaning; ``series``: metrics as series with labels.
- ``prometheus``, ``opentelemetry``: bridges to monitoring systems.

May import: `sdk` itself.
"""
