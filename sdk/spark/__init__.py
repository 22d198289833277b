"""Spark's format ``quorumlog``: topics as data frames, through Spark's Python data source API and Arrow.

PySpark is an extra (``pip install 'quorumlog[spark]'``) and is imported only by what needs it.
"""

from quorumlog.sdk.spark.errors import (
    CheckpointError,
    DataLossError,
    JavaError,
    OptionError,
    SchemaError,
    SparkMissingError,
    SparkSourceError,
)
from quorumlog.sdk.spark.session import local_session

__all__ = [
    "CheckpointError",
    "DataLossError",
    "JavaError",
    "OptionError",
    "SchemaError",
    "SparkMissingError",
    "SparkSourceError",
    "local_session",
]
