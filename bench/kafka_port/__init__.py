"""What the port for Kafka's clients costs beside the SDK's own way, on the same nodes with the same records."""
