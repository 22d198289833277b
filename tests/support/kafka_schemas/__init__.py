"""Kafka's schemas of messages that kafka-python does not have, in the form in which it reads them."""
