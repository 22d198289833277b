"""Settings of the workers of one machine, derived from those that the machine is started with.

A worker is a node. Worker ``i`` of machine ``m`` is node ``m * MAX_WORKERS + i``, in a folder of its own, and its
listeners have the configured ports plus ``i``. So worker 0 has the addresses of the machine's settings, and those that
``controllers`` lists for machines are the addresses of their workers 0, which vote on metadata.
"""

from __future__ import annotations

from pathlib import Path

from quorumlog.server.config.setting_values import MAX_WORKERS, parse_address
from quorumlog.server.config.settings import Settings, SettingsError
from quorumlog.wire.request_limits import LEAST_THROTTLE

#: Largest id of a machine with workers: the ids of nodes end at 2**31 - 1.
MAX_MACHINE = (1 << 31) // MAX_WORKERS - 1
#: Stands for the id of the worker in the names of files that workers cannot share.
ID_MARK = "{node}"
#: Settings with an address whose port each worker counts from.
_ADDRESSES = (
    "listen",
    "advertise",
    "peer_listen",
    "peer_socket_listen",
    "password_listen",
    "plaintext_listen",
    "kafka_listen",
    "kafka_advertise",
    "metrics_listen",
    "metrics_tls_listen",
)
#: Settings with the bytes per second that a machine's disk or network may be used for: each worker gets its part.
_RATES = ("scrub_bytes_per_second", "compaction_bytes_per_second", "replica_copy_bytes_per_second")
#: Pattern of the files in the machine's data directory with the process ids of workers.
PID_FILES = "w[0-9][0-9].pid"
#: Settings with files that name the node.
_OWN_FILES = ("tls_certificate", "tls_key")


def worker_id(machine: int, worker: int) -> int:
    """Returns the node id of a worker."""
    return machine * MAX_WORKERS + worker


def worker_directory(data_dir: Path, worker: int) -> Path:
    """Returns the data directory of a worker."""
    return data_dir / f"w{worker:02d}"


def worker_pid_file(data_dir: Path, worker: int) -> Path:
    """Returns the file with the process id of a worker while it runs."""
    return worker_directory(data_dir, worker).with_suffix(".pid")


def worker_address(address: str, worker: int) -> str:
    """Returns the address (host:port) of a worker, from that of the machine.

    Raises:
        ValueError: no such port exists.
    """
    moved = f"{address.rpartition(':')[0]}:{parse_address(address)[1] + worker}"
    parse_address(moved)
    return moved


def settings_of_workers(settings: Settings, count: int) -> list[Settings]:
    """Returns the settings of each worker of a machine.

    Arguments:
        settings: of the machine.
        count: of its workers.

    Raises:
        SettingsError: an id, a port or a file cannot be derived.
    """
    for machine in (settings.node_id, *settings.controllers):
        if machine > MAX_MACHINE:
            raise SettingsError(
                f"{machine} cannot be the id of a machine with workers, whose nodes have the ids {MAX_WORKERS} times it"
                f" and more: expected a whole number up to {MAX_MACHINE}"
            )
    if settings.has_tls and count > 1:
        for name in _OWN_FILES:
            if ID_MARK not in str(getattr(settings, name) or ID_MARK):
                raise SettingsError(
                    f"{name} = {getattr(settings, name)} cannot belong to each of {count} workers, which are nodes with"
                    f" ids of their own: write {ID_MARK} where the names of the files have the id, as in"
                    f" node-{ID_MARK}.crt (quorumlog certs create-node {worker_id(settings.node_id, 0)}, and so on)"
                )
    return [_settings_of_worker(settings, worker, count) for worker in range(count)]


def _settings_of_worker(settings: Settings, worker: int, count: int) -> Settings:
    node_id = worker_id(settings.node_id, worker)
    changes: dict[str, object] = {
        "node_id": node_id,
        "data_dir": worker_directory(settings.data_dir, worker),
        "controllers": {worker_id(machine, 0): address for machine, address in settings.controllers.items()},
        "machine": settings.machine or str(settings.node_id),
        "workers": count,
    }
    for name in _ADDRESSES:
        address = getattr(settings, name)
        if address is None:
            continue
        try:
            changes[name] = worker_address(address, worker)
        except ValueError:
            raise SettingsError(
                f"{name} = {address} leaves too few ports for {count} workers: expected a port up to {65_536 - count}"
            ) from None
    for name in _RATES if count > 1 else ():
        changes[name] = _part_of(name, getattr(settings, name), count)
    for name in _OWN_FILES:
        if getattr(settings, name) is not None:
            changes[name] = Path(str(getattr(settings, name)).replace(ID_MARK, str(node_id)))
    return settings.with_values(changes)


def _part_of(name: str, rate: int, count: int) -> int:
    """Returns a worker's part of a rate, at least the least that the setting accepts. No limit stays no limit."""
    least = {"scrub_bytes_per_second": 1, "compaction_bytes_per_second": 1024}.get(name, LEAST_THROTTLE)
    return max(least, -(-rate // count)) if rate else 0
