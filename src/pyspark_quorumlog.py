"""Lets Spark find the format ``quorumlog`` automatically.

Spark's Python workers import every top-level module whose name starts with ``pyspark_`` and register the class
``DefaultSource`` that they find in it. So `pip install quorumlog[spark]` is all that a session needs.
"""

from collections.abc import Mapping

from pyspark.sql.datasource import DataSource

from quorumlog.sdk.spark.errors import SparkMissingError, plain_errors
from quorumlog.sdk.spark.session import require_pyspark

__all__ = ["DefaultSource"]

try:
    require_pyspark()
except SparkMissingError:

    class DefaultSource(DataSource):
        """Says what is wrong when it is used: a module that cannot be imported would hide all others from Spark."""

        def __init__(self, options: Mapping[str, str]) -> None:
            super().__init__(dict(options))
            with plain_errors():
                require_pyspark()

        @classmethod
        def name(cls) -> str:
            """The format's name."""
            return "quorumlog"

else:
    from quorumlog.sdk.spark.source import QuorumlogDataSource as DefaultSource
