"""Files as Spark's JVM sees them, on any file system that it supports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def exists(spark: SparkSession, *path: str) -> bool:
    """True if a file or folder exists."""
    system, place = _place(spark, *path)
    return bool(system.exists(place))


def is_empty(spark: SparkSession, *path: str) -> bool:
    """True if a folder does not exist, or is empty."""
    system, place = _place(spark, *path)
    return not system.exists(place) or not len(system.listStatus(place))


def absolute(spark: SparkSession, path: str) -> str:
    """Returns the absolute path, which does not depend on the current directory."""
    system, place = _place(spark, path)
    return str(system.makeQualified(place).toString())


def matching(spark: SparkSession, pattern: str) -> list[str]:
    """Returns the absolute paths that match a path with wildcards; a path without any matches itself if it exists."""
    system, place = _place(spark, pattern)
    return [str(found.getPath().toString()) for found in system.globStatus(place) or ()]


def above(spark: SparkSession, path: str) -> Iterator[str]:
    """Yields the folders above a path, up to the root."""
    _, place = _place(spark, path)
    while (place := place.getParent()) is not None:
        yield str(place.toString())


def read_text(spark: SparkSession, *path: str) -> str:
    """Returns the content of a small file."""
    system, place = _place(spark, *path)
    jvm: Any = spark._jvm
    stream = system.open(place)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def write_text(spark: SparkSession, text: str, *path: str) -> None:
    """Writes a small file, with the folders above it."""
    system, place = _place(spark, *path)
    stream = system.create(place, True)
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()


def _place(spark: SparkSession, *path: str) -> tuple[Any, Any]:
    """Returns a file system and a path on it."""
    jvm: Any = spark._jvm
    place = jvm.org.apache.hadoop.fs.Path(path[0])
    for name in path[1:]:
        place = jvm.org.apache.hadoop.fs.Path(place, name)
    return place.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()), place
