"""The columns of the source, and the validation of a user's own ``.schema(...)``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from quorumlog.sdk.spark.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

HEADERS = "headers"
#: Column and Spark type, in the order of Spark's Kafka source.
COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}
#: Columns that a producer may leave null.
_NULLABLE = frozenset({"key", "value", "timestamp", HEADERS})


def ddl(include_headers: bool) -> str:
    """Returns the schema as DDL text, which the JVM parses: a worker has no session to parse it with."""
    return ", ".join(
        # Under spark.sql.timestampType=TIMESTAMP_NTZ a plain "timestamp" is another type.
        f"{name} {'timestamp_ltz' if kind == 'timestamp' else kind}"
        for name, kind in COLUMNS.items()
        if include_headers or name != HEADERS
    )


def check_projection(schema: StructType, include_headers: bool) -> None:
    """Verifies that every requested column exists with that very type, so that batches pass through without a cast.

    Raises:
        SchemaError: a column is unknown, of another type, declared NOT NULL though it may be null, duplicated, or not
            included; or there are no columns.
    """
    if not schema.fields:
        raise SchemaError(f"the schema has no columns: ask for one or more of {', '.join(COLUMNS)}, or give no schema")
    for name, times in Counter(schema.fieldNames()).items():
        if times > 1:
            raise SchemaError(f"column {name!r} is there {times} times: ask for it once")
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise SchemaError(f"column {field.name!r} is not one of {', '.join(COLUMNS)} (upper and lower case count)")
        if field.name == HEADERS and not include_headers:
            raise SchemaError("column 'headers' is only there with option includeHeaders set to true")
        actual, expected = field.dataType.simpleString(), COLUMNS[field.name]
        if actual != expected:
            spelling = " (in DDL: timestamp_ltz)" if actual == "timestamp_ntz" else ""
            raise SchemaError(
                f"column {field.name!r} is {expected}, not {actual}: read it so{spelling}, then cast it in a select"
            )
        if field.name in _NULLABLE and (not field.nullable or ":false" in field.dataType.json()):
            raise SchemaError(
                f"column {field.name!r} may be null, and so may what is in it: declare it without NOT NULL"
            )
