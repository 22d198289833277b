"""What can go wrong in a Spark job, one class per meaning, each message one line that says what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from quorumlog.sdk.errors import QuorumlogError


class SparkSourceError(QuorumlogError):
    """Any error of the format ``quorumlog`` itself."""


class OptionError(SparkSourceError):
    """An option is missing, unknown, malformed or contradicts another. Names the option and its value."""


class SchemaError(SparkSourceError):
    """The schema given to ``.schema(...)`` asks for columns or types that the source does not have."""


class DataLossError(SparkSourceError):
    """Offsets that the query must read are not there. Names topic, partition and offsets."""


class CheckpointError(SparkSourceError):
    """What a streaming query's checkpoint says cannot be used."""


class DeliveryError(SparkSourceError):
    """Rows cannot be written, or not be written once. Names the topic and the reason."""


class SparkMissingError(SparkSourceError, ImportError):
    """PySpark is not installed, or too old."""


class JavaError(SparkSourceError):
    """No Java runtime that Spark can use."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Our own errors leave a Spark worker as one line, without a traceback of its inner frames.

    PySpark formats what a worker raises and looks at ``SPARK_HIDE_TRACEBACK`` at that moment; the worker process
    ends right after, so nobody else sees the changed environment. Outside a worker nothing is touched.
    """
    try:
        yield
    except QuorumlogError:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
