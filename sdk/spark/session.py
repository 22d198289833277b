"""One call to a configured Spark session on this machine: for demos, notebooks and tests."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from quorumlog.sdk.spark.errors import JavaError, SparkMissingError
from quorumlog.sdk.spark.java import find_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The first PySpark whose streaming sources take limits and whose streaming sinks take Arrow.
OLDEST_PYSPARK = (4, 2)

_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
}

_LOG4J = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
# Without a level of its own, the gateway raises the root's to WARN and prints that it did.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
appender.console.type = Console
appender.console.name = stderr
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex{{3}}
"""


def local_session(app_name: str, master: str = "local[2]", *, log_level: str = "error", **conf: str) -> SparkSession:
    """Starts, or returns, the Spark session of this process, with format ``quorumlog`` registered.

    It uses the current Python interpreter, the loopback interface, UTC, Arrow and no web UI, finds a Java runtime
    (quorumlog.sdk.spark.java), and logs only messages of at least ``log_level``.

    Arguments:
        app_name: the application's name.
        master: Spark's master URL.
        log_level: of the JVM's log on stderr: off, fatal, error, warn, info.
        conf: further Spark settings, dots written as two underscores: ``spark__driver__memory="2g"``.

    Raises:
        SparkMissingError: PySpark is not installed, or too old.
        JavaError: no Java runtime that Spark can use was found, or it exited before Spark had started.
    """
    require_pyspark()
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = str(find_java_home())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app_name).master(master)
    settings = _DEFAULTS | {name.replace("__", "."): value for name, value in conf.items()}
    with tempfile.TemporaryDirectory(prefix="quorumlog-spark-") as folder:
        # The JVM reads its log settings once, when it starts; the file is not needed afterwards.
        log4j = Path(folder, "log4j2.properties")
        log4j.write_text(_LOG4J.format(level=log_level))
        java_options = (
            f"-Dlog4j2.configurationFile={log4j.as_uri()} {settings.get('spark.driver.extraJavaOptions', '')}"
        )
        settings["spark.driver.extraJavaOptions"] = java_options.strip()
        for name, value in settings.items():
            builder = builder.config(name, value)
        try:
            with interrupted_afterwards():
                return builder.getOrCreate()
        except PySparkRuntimeError as error:
            if error.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            option_names = ", ".join(name.replace("__", ".") for name in conf) or "none given"
            raise JavaError(
                f"Java has ended before Spark had started; its output is above: correct the master ({master!r}) or"
                f" the settings ({option_names}), or see to free memory"
            ) from None


@contextmanager
def interrupted_afterwards() -> Iterator[None]:
    """Delays Ctrl-C until the end of the block.

    If PySpark is interrupted while the JVM starts, it removes the file in which the JVM reports its port. The JVM then
    fails, but one of its threads continues, and so does the orphaned process, permanently.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received = threading.Event()

    def note(*_: object) -> None:
        received.set()

    before = signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        # A new Spark context has installed a handler of its own.
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before or signal.default_int_handler)
    if received.is_set():
        raise KeyboardInterrupt


def require_pyspark() -> None:
    """Verifies that PySpark is installed, and new enough.

    Raises:
        SparkMissingError: it is not.
    """
    try:
        import pyspark.sql
    except ImportError as error:
        raise SparkMissingError(f"PySpark is not installed ({error}): pip install 'quorumlog[spark]'") from None
    version = tuple(int(number) for number in re.findall(r"\d+", pyspark.__version__)[:2])
    if version < OLDEST_PYSPARK:
        needed = ".".join(map(str, OLDEST_PYSPARK))
        raise SparkMissingError(
            f"PySpark {pyspark.__version__} is too old, the format quorumlog needs {needed} or newer:"
            " pip install --upgrade 'quorumlog[spark]'"
        )
