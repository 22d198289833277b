"""Binds checkpoints to their queries: Spark continues from any checkpoint that fits its plan, with any query's offsets.

So each pipeline stores a note in its checkpoint, with the options that a query cannot change later.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from quorumlog.sdk.spark.errors import OptionError
from quorumlog.sdk.spark.pipelines import files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOTE = "quorumlog.json"
_PIPELINE = "pipeline"


def claim(spark: SparkSession, checkpoint: str, pipeline: str, options: Mapping[str, str | None]) -> bool:
    """Claims a new checkpoint for a query, or verifies that an existing one is this query's.

    Arguments:
        options: options that the checkpoint is bound to, by the names that the user knows.

    Returns:
        True if it is new.

    Raises:
        OptionError: it is another query's.
    """
    mine = {_PIPELINE: pipeline, **options}
    if not files.exists(spark, checkpoint, "metadata"):
        files.write_text(spark, json.dumps(mine), checkpoint, _NOTE)
        return True
    advice = "give this query a checkpoint of its own"
    if not files.exists(spark, checkpoint, _NOTE):
        raise OptionError(f"{checkpoint} is the checkpoint of some other query: {advice}")
    kept = json.loads(files.read_text(spark, checkpoint, _NOTE))
    if kept.get(_PIPELINE) != pipeline:
        raise OptionError(f"{checkpoint} is a checkpoint of {kept.get(_PIPELINE)}: {advice}")
    for name, value in mine.items():
        if kept.get(name) != value:
            raise OptionError(f"{checkpoint} is of a query with {_said(name, kept.get(name))}: {advice}, or use that")
    return False


def _said(option: str, value: str | None) -> str:
    return f"no {option}" if value is None else f"{option} {value}"


def has_results(spark: SparkSession, checkpoint: str) -> bool:
    """True if a query has completed a micro-batch with a checkpoint."""
    return not files.is_empty(spark, checkpoint, "commits")
