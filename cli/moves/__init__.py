"""What is left of moves of replicas while a command waits for their end: how many bytes, and what they wait for."""
