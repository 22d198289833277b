"""Reads Parquet files as a whole: Spark ignores some, and reads others that are not valid."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from quorumlog.sdk.spark.errors import OptionError
from quorumlog.sdk.spark.pipelines import files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Spark's list of the valid files that a streaming query has written.
_LIST = "_spark_metadata"


def read(spark: SparkSession, path: str) -> DataFrame:
    """Returns the rows of a file, a directory, or matches of a pattern, with the columns of all files.

    Raises:
        OptionError: some of it would be read twice, or not at all.
    """
    from pyspark.errors import AnalysisException

    _refuse_part_of_an_archive(spark, path)
    try:
        # Without mergeSchema the columns are those of one file that Spark picks; columns of other files are left out.
        rows = spark.read.option("mergeSchema", "true").parquet(path)
    except AnalysisException as error:
        if error.getCondition() == "UNABLE_TO_INFER_SCHEMA":
            raise OptionError(f"{path} holds no Parquet files") from None
        raise
    if not files.exists(spark, path, _LIST):
        _refuse_hidden_folders(spark, path, rows)
    return rows


def _refuse_part_of_an_archive(spark: SparkSession, path: str) -> None:
    """Refuses a part of a directory that a streaming query has written: Spark uses its list only for the whole
    directory.

    Runs that were killed have left files beside those of the list, with duplicate records.
    """
    itself = files.absolute(spark, path)
    known: set[str] = set()
    for found in files.matching(spark, path):
        # A match of a pattern may be such a directory too: Spark does not use its list.
        for folder in chain([] if found == itself else [found], files.above(spark, found)):
            if folder in known:
                break
            known.add(folder)
            if files.exists(spark, folder, _LIST):
                raise OptionError(
                    f"{path} is a part of {folder}, which a stream has written and which may hold more files than"
                    f" count: give {folder} itself, and choose rows with --where"
                )


def _refuse_hidden_folders(spark: SparkSession, path: str, rows: DataFrame) -> None:
    """Refuses ignored folders: Spark reads folders named COLUMN=VALUE as partitions, and ignores all others."""
    below = spark.read.schema(rows.schema).option("recursiveFileLookup", "true").parquet(path)
    passed_over = set(below.inputFiles()) - set(rows.inputFiles())
    if passed_over:
        raise OptionError(
            f"{len(passed_over):,} files below {path}, such as {min(passed_over)}, are in folders that Spark does not"
            " look into, because they are not named COLUMN=VALUE: give a pattern that names the folders, such as"
            f" --from '{path.rstrip('/')}/*'"
        )
