"""Lets Spark find the format ``quorumlog`` by itself.

Spark's Python workers import every top-level module whose name begins with ``pyspark_`` and register the class
``DefaultSource`` that they find in it. So `pip install quorumlog[spark]` is all that a session needs.
"""

from quorumlog.sdk.spark.source import QuorumlogDataSource as DefaultSource

__all__ = ["DefaultSource"]
