"""A standalone Spark cluster of separate processes on this machine: a master and its workers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pyspark

from quorumlog.local import cleanup_process as janitor
from quorumlog.sdk.spark.java import find_java_home

DEADLINE_S = 240.0
#: A run this short is over before the second compiler has paid for itself, and checks that Spark's classes are well
#: formed take a seventh of a start.
QUICK = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    " -Xlog:disable"
)

#: A job starts when it has both workers, and takes of each one core.
_DEFAULTS = f"""\
spark.ui.enabled false
spark.driver.host 127.0.0.1
spark.driver.bindAddress 127.0.0.1
spark.driver.extraJavaOptions {QUICK}
spark.executor.extraJavaOptions {QUICK}
spark.executor.memory 512m
spark.cores.max 2
spark.scheduler.minRegisteredResourcesRatio 1.0
spark.scheduler.maxRegisteredResourcesWaitingTime 10m
spark.sql.shuffle.partitions 2
"""
_LOG4J = """\
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex{3}
"""


class StandaloneSpark:
    """A master and workers of one core each, with folders and ports of their own.

    Arguments:
        root: where they keep their logs and their work.
        workers: how many.
    """

    def __init__(self, root: Path, workers: int) -> None:
        self._root = root
        # The processes end with this one, also if it is killed; executors and their Python end with their worker.
        self._janitor = subprocess.Popen(
            [sys.executable, "-I", "-S", janitor.__file__, str(os.getpid()), ""],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        conf = root / "conf"
        conf.mkdir()
        (conf / "spark-defaults.conf").write_text(_DEFAULTS)
        (conf / "log4j2.properties").write_text(_LOG4J)
        self.environment = os.environ | {
            "JAVA_HOME": str(find_java_home()),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_CONF_DIR": str(conf),
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        self._master = self._start("master", "master.Master")
        try:
            self.master = self._said("master", r"Starting Spark master at (spark://\S+)")
            for number in range(workers):
                self.start_worker(number)
            self.wait_for_workers()
        except BaseException:
            self.stop()
            raise

    def start_worker(self, number: int) -> None:
        """Starts a worker, which must not be there."""
        assert number not in self._workers
        work = self._root / f"worker-{number}"
        options = ["--cores", "1", "--memory", "1g", "--work-dir", str(work), self.master]
        self._workers[number] = self._start(f"worker-{number}", "worker.Worker", *options, host=_host(number))

    def wait_for_workers(self) -> None:
        """Until all workers are registered with the master."""
        for number in self._workers:
            self._said(f"worker-{number}", r"(Successfully registered) with master")

    def pause_worker(self, number: int) -> None:
        """Suspends a worker, its executors and their Python processes; no other process notices it yet."""
        _to_each(self._workers[number], psutil.Process.suspend)

    def kill_worker(self, number: int) -> None:
        """Kills a worker, its executors and their Python processes, as if their machine crashed."""
        kill_tree(self._workers.pop(number))

    def stop(self) -> None:
        """Ends everything."""
        for process in (*self._workers.values(), self._master):
            kill_tree(process)
        self._janitor.communicate(b"done\n")

    def _start(self, name: str, of: str, *options: str, host: str = "127.0.0.1") -> subprocess.Popen[bytes]:
        here = ["--host", host, "--port", "0", "--webui-port", "0"]
        command = [f"{self.environment['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{of}"]
        with self._log(name).open("wb") as log:
            process = subprocess.Popen([*command, *here, *options], stdout=log, stderr=log, env=self.environment)
        assert self._janitor.stdin is not None
        self._janitor.stdin.write(f"{process.pid} {janitor.start_time(process.pid)}\n".encode())
        self._janitor.stdin.flush()
        return process

    def _said(self, name: str, pattern: str) -> str:
        """Waits for a line in a process's log; returns the pattern's group."""
        deadline = time.monotonic() + DEADLINE_S
        while (found := re.search(pattern, self._log(name).read_text())) is None:
            assert time.monotonic() < deadline, self._log(name).read_text()
            time.sleep(0.05)
        return found.group(1)

    def _log(self, name: str) -> Path:
        return self._root / f"{name}.log"


def _host(worker: int) -> str:
    """Returns the address of a worker. Spark runs a speculative copy only on another host."""
    return f"127.0.0.{worker + 1}" if sys.platform == "linux" else "127.0.0.1"


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and all below it, as far as they live."""
    if process.poll() is None:
        _to_each(process, psutil.Process.kill)
    process.wait()


def _to_each(process: subprocess.Popen[bytes], do: Callable[[psutil.Process], None]) -> None:
    first = psutil.Process(process.pid)
    for one in (first, *first.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            do(one)
