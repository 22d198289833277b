"""Discovery of the format by Spark: found by name, and never in the way of those who do not use it."""

import importlib
import os
import pkgutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pyspark.sql.datasource import DataSource

from quorumlog.sdk.spark import SparkMissingError, local_session
from quorumlog.sdk.spark.java import find_java_home
from quorumlog.sdk.spark.session import interrupted_afterwards
from tests.support.standalone import QUICK

ROOT = Path(__file__).resolve().parents[2]


def test_the_clients_and_the_session_helper_load_without_pyspark() -> None:
    program = (
        "import sys, quorumlog.sdk, quorumlog.sdk.spark as spark;"
        " assert spark.local_session and 'pyspark' not in sys.modules and 'pyarrow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_without_pyspark_the_session_helper_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(SparkMissingError, match=r"pip install 'quorumlog\[spark\]'"):
        local_session("never")


def test_a_pyspark_that_is_too_old_is_told_by_the_session_and_by_the_format(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.1.1")
    with pytest.raises(SparkMissingError, match=r"PySpark 4\.1\.1 is too old, .* needs 4\.2 or newer: pip install"):
        local_session("never")
    # Spark looks at all such modules, and at none when one cannot be imported.
    monkeypatch.syspath_prepend(str(ROOT / "src"))
    monkeypatch.delitem(sys.modules, "pyspark_quorumlog", raising=False)
    found = importlib.import_module("pyspark_quorumlog").DefaultSource
    del sys.modules["pyspark_quorumlog"]
    assert issubclass(found, DataSource) and found.name() == "quorumlog"
    with pytest.raises(SparkMissingError, match="too old"):
        found({})
    # Who registers the format by hand imports it, and not what that PySpark lacks.
    monkeypatch.delitem(sys.modules, "quorumlog.sdk.spark.source", raising=False)
    with pytest.raises(SparkMissingError, match="too old"):
        importlib.import_module("quorumlog.sdk.spark.source")


def test_an_interrupt_while_java_starts_counts_once_it_has() -> None:
    """PySpark that is interrupted in the meantime leaves a JVM behind that never ends."""
    before, done = signal.getsignal(signal.SIGINT), []

    def start() -> None:
        with interrupted_afterwards():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("started")

    with pytest.raises(KeyboardInterrupt):
        start()
    assert done and signal.getsignal(signal.SIGINT) is before


def test_spark_finds_the_registration_module_where_the_package_puts_it() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folder = ROOT / setuptools["package-dir"][""]
    found = [module.name for module in pkgutil.iter_modules([str(folder)]) if not module.ispkg]
    assert found == setuptools["py-modules"]
    program = "import pyspark_quorumlog as found; assert found.DefaultSource.name() == 'quorumlog'"
    environment = os.environ | {"PYTHONPATH": str(folder)}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env=environment)


@pytest.mark.spark
def test_a_plain_session_finds_the_format_by_itself() -> None:
    """As in an activated environment: nothing is registered, no path is set, and the session is Spark's own."""
    program = (
        "from pyspark.sql import SparkSession; spark = SparkSession.builder.getOrCreate();"
        " rows = spark.read.format('quorumlog').option('quorumlog.bootstrap.servers', '127.0.0.1:1');"
        " print('columns:', *rows.option('subscribe', 'orders').load().columns); spark.stop()"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "PYTHONPATH"))}
    environment |= {
        "JAVA_HOME": str(find_java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "JDK_JAVA_OPTIONS": QUICK,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=110, env=environment
    )
    assert "columns: key value topic partition offset timestamp timestampType" in done.stdout, done.stderr
