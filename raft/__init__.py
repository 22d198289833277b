"""The consensus core: Raft as pure state machines. No I/O, no clock, no threads, no global randomness."""
