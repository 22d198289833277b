"""What clients count of themselves: ``producer.metrics()``, ``consumer.metrics()``, and bridges to what collects it.

Names and groups are those of Kafka's clients, as kafka-python gives them: a dict of groups, each a dict of figures.

- ``producer_metrics``, ``consumer_metrics``: what each client counts: nothing per record.
- ``windows``: counts and times as Kafka's clients show them: in total, and recent.
- ``figures``: every figure with its group, name and meaning; ``series``: the figures as series with labels.
- ``prometheus``, ``opentelemetry``: bridges to what collects them.

May import: `sdk` itself.
"""
