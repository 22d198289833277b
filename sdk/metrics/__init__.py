"""What clients count of themselves: ``producer.metrics()``, ``consumer.metrics()``, and bridges to what collects it.

Names and groups are those of Kafka's clients, as kafka-python gives them: a dict of groups, each a dict of figures.
"""
