"""What must be: models of a partition's log, a compacted topic, a coordinator, consumer-group members."""
