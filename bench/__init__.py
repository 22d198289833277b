"""Throughput and latency of a three-node cluster beside the bare path: ``python -m bench``."""
