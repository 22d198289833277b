"""Errors of a Spark job, one class per meaning, each message one line that says what to do."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from quorumlog.sdk.errors import QuorumlogError


class SparkSourceError(QuorumlogError):
    """Base of all errors of the format ``quorumlog``."""


class OptionError(SparkSourceError):
    """An option is missing, unknown, malformed or contradicts another. The message names the option and its value."""


class SchemaError(SparkSourceError):
    """The schema given to ``.schema(...)`` has columns or types that the source does not have."""


class DataLossError(SparkSourceError):
    """Offsets that the query must read no longer exist. The message names topic, partition and offsets."""


class CheckpointError(SparkSourceError):
    """The content of a streaming query's checkpoint cannot be used."""


class DeliveryError(SparkSourceError):
    """Rows cannot be written, or not exactly once. The message names the topic and the reason."""


class SparkMissingError(SparkSourceError, ImportError):
    """PySpark is not installed, or too old."""


class JavaError(SparkSourceError):
    """No Java runtime that Spark can use was found."""


@contextmanager
def plain_errors() -> Iterator[None]:
    """Makes our own errors leave a Spark worker as one line, without a traceback of its inner frames.

    PySpark formats the exception of a worker and reads ``SPARK_HIDE_TRACEBACK`` at that moment; the worker process ends
    right after, so nothing else sees the changed environment. Outside a worker nothing is changed.
    """
    try:
        yield
    except QuorumlogError:
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise
