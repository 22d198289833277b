"""``LocalCluster``: real node processes on this machine, for tests, notebooks, demos and ``quorumlog cluster up``."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from quorumlog.local import cleanup_process as janitor
from quorumlog.local.certificates import ADMIN, LocalCertificates
from quorumlog.local.cluster_probe import ClusterView
from quorumlog.local.cluster_settings import check_settings, unused_variables
from quorumlog.local.node_process import ClusterError, NodeProcess, NodesSlowError, NodeWaitsError
from quorumlog.local.ports import ReservedPorts, are_free, require_free, wait_listening
from quorumlog.local.state import MAX_NODES, MAX_PROCESSES, ClusterState, NodeRecord
from quorumlog.server.config.setting_values import MAX_WORKERS
from quorumlog.server.config.worker_settings import ID_MARK, worker_address, worker_directory, worker_id

_log = logging.getLogger("quorumlog.local")

HOST = "127.0.0.1"
#: Folder of the certificates of a cluster with TLS, in its directory.
CERTIFICATES = "certs"
#: More voters of the metadata quorum than this only make it slower.
MAX_CONTROLLERS = 5
#: A busy machine takes half a minute for what an idle one does in two seconds.
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
_POLL_S = 0.02
_KILLED_TIMEOUT_S = 30.0
#: Reported by a node that has lost its disk.
_ASK_AGAIN_S = 0.5
_RETURNED_EMPTY = "returned with an empty data directory"

__all__ = ["ClusterError", "LocalCluster", "NodeStatus", "NodeWaitsError", "NodesSlowError"]


@dataclass(slots=True, frozen=True)
class NodeStatus:
    """Status of one node of a local cluster. ``reason`` is why it is not ready."""

    node_id: int
    address: str
    pid: int | None
    running: bool
    ready: bool
    reason: str


class LocalCluster:
    """A cluster of real node processes on loopback.

    As a context manager it is up and ready inside the block, and stopped afterwards, however the block ends; even if
    this process is killed, the nodes stop and temporary data is removed.

    Arguments:
        nodes: number of nodes; their ids are 1 to ``nodes``.
        workers: number of workers of each node, which is a machine then: it starts, stops and is killed as a whole.
            Worker ``i`` of node ``n`` is node ``64 * n + i`` of the cluster. ``kill``, ``pause`` and ``resume`` also
            accept the id of one worker, which its node starts again once it has ended.
        data_dir: directory for the nodes' data; temporary unless given. If it has a cluster already, that one
            continues.
        base_port: node ``i`` listens on ``base_port + i - 1``; free ports unless given.
        controllers: number of the first nodes that vote on metadata; the largest odd number up to 5 unless given.
        advertise: node id -> advertised host:port of a node, for example of a proxy in front of it; its listening
            address unless given.
        advertise_host: the advertised host of all nodes, with the ports where they listen; instead of ``advertise``,
            and also for peers.
        settings: of every node, by name as in ``quorumlog.server.config.settings``. A cluster that keeps its data also
            keeps them. Environment variables such as ``QUORUMLOG_RACK`` have no effect.
        node_settings: node id -> settings that only this node has.
        env: environment variables of every node, on top of this process's.
        kafka: nodes also serve Kafka's own clients, at ``kafka_bootstrap_servers``. Topics that they mention are
            created, unless ``kafka_auto_create_topics_enable`` is set to false. A cluster without such a listener gets
            one.
        tls: nodes authenticate nodes and clients by certificate. The files are created in ``data_dir``/certs, and
            ``client_tls`` are the options with which clients connect.
        detached: the nodes outlive this process; then ``data_dir`` must be given. ``attach`` finds them again.

    Raises:
        ValueError: invalid arguments.
        ClusterSettingsError: a setting that is unknown, invalid, or chosen by the cluster itself.
        ClusterError: the directory has a cluster of another size or address, or one that runs with other settings.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        workers: int = 1,
        data_dir: str | os.PathLike[str] | None = None,
        base_port: int | None = None,
        controllers: int | None = None,
        advertise: Mapping[int, str] | None = None,
        advertise_host: str | None = None,
        settings: Mapping[str, object] | None = None,
        node_settings: Mapping[int, Mapping[str, object]] | None = None,
        env: Mapping[str, str] | None = None,
        tls: bool = False,
        kafka: bool = False,
        detached: bool = False,
    ) -> None:
        if not 1 <= nodes <= MAX_NODES:
            raise ValueError(f"a local cluster can have 1 to {MAX_NODES} nodes, not {nodes}")
        # Node 64 would be named like the first worker of node 1.
        most = min(MAX_WORKERS, MAX_PROCESSES // nodes) if nodes < MAX_WORKERS else 1
        if not 1 <= workers <= most:
            raise ValueError(f"each of {nodes} nodes can have 1 to {most} workers, not {workers}")
        if controllers is None:
            controllers = min(nodes - 1 + nodes % 2, MAX_CONTROLLERS)
        if not 1 <= controllers <= nodes:
            raise ValueError(f"of {nodes} nodes 1 to {nodes} can be controllers, not {controllers}")
        ports = nodes * workers * (1 + tls + kafka)
        if base_port is not None and not 1 <= base_port <= 65_536 - ports:
            raise ValueError(f"base_port {base_port} leaves fewer than {ports} ports up to 65535")
        if detached and (advertise or advertise_host):
            raise ValueError("a detached cluster cannot advertise other addresses: a later process could not find them")
        if detached and data_dir is None:
            raise ValueError("a detached cluster needs a data_dir, where a later process finds it")
        self._detached = detached
        self._advertise = dict(advertise or {})
        self._advertise_host = advertise_host
        self._node_settings = {node: dict(its) for node, its in (node_settings or {}).items()}
        self._temporary = data_dir is None
        self._owner = os.getpid()
        self._janitor: subprocess.Popen[bytes] | None = None
        self._life_line: tuple[int, int] | None = None
        self._ports: ReservedPorts | None = None
        self._root = Path(tempfile.mkdtemp(prefix="quorumlog-") if data_dir is None else data_dir).absolute()
        self._root.mkdir(parents=True, exist_ok=True)
        text = {name: str(value) for name, value in (settings or {}).items()}
        try:
            wanted = ClusterState([], list(range(1, controllers + 1)), text, dict(env or {}), workers)
            self._state = self._make_state(nodes, base_port, wanted, tls=tls, kafka=kafka)
        except BaseException:
            if self._temporary:
                shutil.rmtree(self._root, ignore_errors=True)
            raise
        self._certificates = None
        if self._state.nodes[0].peer_address:
            more = (advertise_host,) if advertise_host is not None else ()
            self._certificates = LocalCertificates(self._root / CERTIFICATES, more)
            self._certificates.make(member for node in self._state.nodes for member in self._members(node.node_id))
        self._nodes = {node.node_id: self._process(node) for node in self._state.nodes}
        self._wanted = {node.node_id for node in self._nodes.values() if node.is_running()}

    @classmethod
    def attach(cls, data_dir: str | os.PathLike[str]) -> LocalCluster:
        """Returns the cluster in a directory, running or not. It continues when this process ends.

        Raises:
            ClusterError: the directory has none.
        """
        root = Path(data_dir).absolute()
        state = _load(root)
        if state is None:
            raise ClusterError(f"{root} has no local cluster: start one with quorumlog cluster up --data-dir {root}")
        return cls(
            len(state.nodes), workers=state.workers, data_dir=root, controllers=len(state.controllers), detached=True
        )

    def __enter__(self) -> Self:
        try:
            self.up()
        except (NodeWaitsError, NodesSlowError):
            self.shutdown()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self._give_up_ports()

    # -- queries ---------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of all nodes, with workers those of all workers, as accepted by clients."""
        return ",".join(address for node in self._nodes for address in self._spread(self._advertised(node)))

    @property
    def kafka_bootstrap_servers(self) -> str:
        """Addresses at which Kafka's own clients reach the nodes; empty for a cluster without ``kafka``."""
        return ",".join(
            self._at_advertised_host(address)
            for node in self._state.nodes
            for address in self._spread(node.kafka_address)
        )

    @property
    def node_ids(self) -> tuple[int, ...]:
        """Ids of all nodes, running or not."""
        return tuple(self._nodes)

    @property
    def workers(self) -> int:
        """Number of workers of each node."""
        return self._state.workers

    @property
    def member_ids(self) -> tuple[int, ...]:
        """Ids of all members of the cluster: of the nodes, or with workers of all workers."""
        return tuple(member for node in self._nodes for member in self._members(node))

    @property
    def controller_ids(self) -> tuple[int, ...]:
        """Ids of the members that vote on metadata."""
        return tuple(next(iter(self._members(node))) for node in self._state.controllers)

    def node_of(self, member: int) -> int:
        """Returns the node that a member of the cluster belongs to: itself, or that of a worker."""
        return self._member(member).node_id

    @property
    def root(self) -> Path:
        """The directory with all of the cluster's files."""
        return self._root

    @property
    def client_tls(self) -> dict[str, str]:
        """Options with which clients connect, as user ``admin``; none for a cluster without TLS."""
        return {} if self._certificates is None else self._certificates.of_client(ADMIN)

    @property
    def certificates(self) -> LocalCertificates | None:
        """The authorities and certificates; None without TLS."""
        return self._certificates

    def peer_address(self, node: int) -> str:
        """Returns the host:port at which a node serves its peers."""
        self._node(node)
        return self._peer_address(node)

    def address(self, node: int) -> str:
        """Returns the host:port at which a node, or a worker, listens."""
        return self._members(self._member(node).node_id).get(node) or self._node(node).address

    def pid(self, node: int) -> int | None:
        """Returns the process id of a node, or of a worker; None while it does not run."""
        return self._node(node).pid if node in self._nodes else self._member(node).workers().get(node)

    @property
    def pids(self) -> list[int]:
        """Process ids of all nodes that run."""
        return [pid for node in self.node_ids if (pid := self.pid(node)) is not None]

    def is_running(self, node: int) -> bool:
        """True if the process of a node, or of a worker, exists, even if it is paused."""
        return self.pid(node) is not None

    def data_dir(self, node: int) -> Path:
        """Returns the data directory of a node, or of a worker."""
        process = self._member(node)
        if node in self._nodes:
            return process.data_dir
        return worker_directory(process.data_dir, node - worker_id(process.node_id, 0))

    def log_path(self, node: int) -> Path:
        """Returns the path of the log of a node, or of the node of a worker."""
        return self._member(node).log_path

    def leader(self, topic: str | None = None, partition: int = 0) -> int | None:
        """Returns the leader of a partition, or the active controller if no topic is given; None without one. With
        workers it is a worker.
        """
        with self._view(self._running_addresses()) as view:
            return view.controller() if topic is None else view.leader(topic, partition)

    def status(self) -> list[NodeStatus]:
        """Returns the status of every node, or with workers of every worker."""
        with self._view(self._running_addresses()) as view:
            return [self._status(member, view) for member in self.member_ids]

    # -- the whole cluster -----------------------------------------------------------------------------------------

    def up(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Starts every node that does not run and waits until all are ready.

        If a node exits, those that this call started are stopped again; nodes that ran before continue.

        Raises:
            NodeWaitsError: nodes have lost their disks, and all others serve; they continue.
            NodesSlowError: nodes were not ready in time; all keep running.
            ClusterError: a node exited; the message has its error.
        """
        for line in unused_variables():
            _log.warning("%s", line)
        if not self._detached and any(node.is_running() for node in self._nodes.values()):
            raise ClusterError(
                f"the cluster in {self._root} is running already: quorumlog cluster down --data-dir {self._root}"
            )
        # Check all ports before starting any node: otherwise the others would start, and contact a foreign process as a
        # peer.
        absent = [node for node in self._nodes.values() if not node.is_running()]
        for node in absent:
            peers = self._peer_address(node.node_id) if self._certificates is not None else ""
            for address in (node.address, peers, self._kafka_address(node.node_id)):
                for each in self._spread(address):
                    require_free(each)
        try:
            for node in absent:
                self._spawn(node)
            self.wait_ready(timeout_s)
        except (NodeWaitsError, NodesSlowError):
            raise
        except BaseException:
            if len(absent) < len(self._nodes):
                self._end(absent, STOP_TIMEOUT_S)
                self._save()
            else:
                self.shutdown()
            raise

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Waits until every node that was started, and not stopped or killed since, serves and sees all the others.

        Raises:
            NodeWaitsError: all do except those that returned with an empty data directory.
            NodesSlowError: they were not ready in time; the message names one of them, and its log.
            ClusterError: a node exited; the message has its error.
        """
        deadline = time.monotonic() + timeout_s
        addresses = {
            member: address for node in sorted(self._wanted) for member, address in self._members(node).items()
        }
        waiting, expected = list(addresses), frozenset(addresses)
        empty: dict[int, str] = {}
        ask_again = time.monotonic() + _ASK_AGAIN_S
        with self._view(addresses) as view:
            while waiting:
                node = waiting[0]
                if node in empty:
                    waiting.pop(0)
                    continue
                if not self._member(node).is_running():
                    raise self._ended(node)
                seen = view.node(node)
                if seen.ready and seen.controller is not None and expected <= seen.unfenced:
                    waiting.pop(0)
                    continue
                missing = sorted(expected - seen.unfenced)
                if time.monotonic() > ask_again:
                    ask_again = time.monotonic() + _ASK_AGAIN_S
                    said = {one: view.node(one).reason for one in missing}
                    empty |= {one: its for one, its in said.items() if _RETURNED_EMPTY in its}
                    expected -= empty.keys()
                if time.monotonic() > deadline:
                    raise self._slow(view, node, missing, timeout_s)
                time.sleep(_POLL_S)
        for wanted in sorted(self._wanted):
            try:
                for address in self._spread(self._kafka_address(wanted)):
                    wait_listening(address, deadline)
            except ClusterError as error:
                raise self._not_ready(wanted, str(error), timeout_s) from None
        if empty:
            raise NodeWaitsError(f"all other nodes serve, but {'; '.join(empty.values())}")

    def _slow(self, view: ClusterView, asked: int, missing: list[int], timeout_s: float) -> ClusterError:
        """Returns an error that names the node that is not ready, and its log.

        Arguments:
            asked: the node that was waited for; it may itself wait for others.
            missing: nodes that it does not see in the cluster.
        """
        seen = {node: view.node(node) for node in sorted({asked, *missing})}
        ended = [node for node in seen if not self._member(node).is_running()]
        if ended:
            return self._ended(ended[0])
        # A node that does not answer may be what another one waits for, which reports only itself.
        silent = [node for node, its in seen.items() if not its.answers]
        unready = [node for node, its in seen.items() if not its.ready]
        node = next(iter([*silent, *unready, *missing, asked]))
        unseen = f"node {asked} does not see it in the cluster" if node in missing else "it reports no controller"
        return self._not_ready(node, seen[node].reason or unseen, timeout_s)

    def _not_ready(self, node: int, why: str, timeout_s: float) -> NodesSlowError:
        process = self._member(node)
        # The log of a temporary cluster is about to be removed.
        last = f"; last line of its log: {process.last_words()}" if self._temporary else ""
        return NodesSlowError(
            f"node {node} is not ready after {timeout_s:g} s: {why}; its log is {process.log_path}{last}"
        )

    def _ended(self, member: int) -> ClusterError:
        process = self._member(member)
        return ClusterError(f"node {process.node_id} ended: {process.last_words()}")

    def shutdown(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stops every node and removes temporary data. May be called twice, and does nothing in a forked child.

        Nodes with data to keep hand over their leaderships and stop; one that does not within ``timeout_s`` is killed.
        """
        if os.getpid() != self._owner:
            return
        self._end(self._nodes.values(), timeout_s)
        self._release()
        if self._temporary:
            shutil.rmtree(self._root, ignore_errors=True)
            self._give_up_ports()
        else:
            self._save()

    def _end(self, nodes: Collection[NodeProcess], timeout_s: float) -> None:
        """Stops the processes of some nodes."""
        running = [node for node in nodes if node.is_running()]
        self._wanted.difference_update(node.node_id for node in nodes)
        for node in running:
            node.signal(signal.SIGCONT)
            node.signal(signal.SIGKILL if self._temporary else signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        for node in running:
            try:
                node.wait(max(0.0, deadline - time.monotonic()))
            except ClusterError:
                node.signal(signal.SIGKILL)
                node.wait(_KILLED_TIMEOUT_S)

    def _give_up_ports(self) -> None:
        """Releases the reserved ports. A cluster that keeps its data uses the same ports again until it is closed."""
        if self._ports is not None:
            self._ports.close()

    # -- single nodes ----------------------------------------------------------------------------------------------

    def start(self, node: int, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Starts a node again with its data; returns once it answers. ``wait_ready`` waits for readiness.

        Raises:
            ClusterError: it runs already, or it exited; the message has its error.
        """
        process = self._node(node)
        self._spawn(process)
        deadline = time.monotonic() + timeout_s
        with self._view(self._members(node)) as view:
            while any("does not answer" in view.node(member).reason for member in self._members(node)):
                if not process.is_running():
                    raise self._ended(node)
                if time.monotonic() > deadline:
                    raise ClusterError(f"node {node} does not answer after {timeout_s:g} s; {process.log_path}")
                time.sleep(_POLL_S)

    def kill(self, node: int) -> None:
        """Sends SIGKILL and waits until the process, and all its workers, have exited. A worker is started again."""
        process = self._member(node)
        if node not in self._nodes:
            process.kill_worker(node, _KILLED_TIMEOUT_S)
            return
        self._wanted.discard(node)
        process.signal(signal.SIGKILL)
        process.wait(_KILLED_TIMEOUT_S)
        self._save()

    def stop(self, node: int, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Sends SIGTERM and waits: the node hands over its leaderships and stops.

        Raises:
            ClusterError: it did not stop in time, or with an error.
        """
        process = self._node(node)
        self._wanted.discard(node)
        process.signal(signal.SIGTERM)
        status = process.wait(timeout_s)
        self._save()
        if status:
            raise ClusterError(f"node {node} ended with status {status}: {process.last_words()}")

    def pause(self, node: int) -> None:
        """Sends SIGSTOP: the process exists and keeps its connections, but does nothing."""
        self._member(node).signal(signal.SIGSTOP, None if node in self._nodes else node)

    def resume(self, node: int) -> None:
        """Sends SIGCONT: a paused node continues."""
        self._member(node).signal(signal.SIGCONT, None if node in self._nodes else node)

    # -- internals -------------------------------------------------------------------------------------------------

    def _make_state(
        self,
        nodes: int,
        base_port: int | None,
        wanted: ClusterState,
        *,
        tls: bool,
        kafka: bool,
    ) -> ClusterState:
        """Returns the state of the cluster in the directory, or that of a new one.

        Arguments:
            wanted: the cluster as requested, without its nodes.
        """
        known, settings, workers = _load(self._root), wanted.settings, wanted.workers
        if known is not None:
            addresses = [node.address for node in known.nodes]
            at = [f"{HOST}:{base_port + i * workers}" for i in range(nodes)] if base_port is not None else addresses
            same = (len(known.nodes), known.controllers, known.workers) == (nodes, wanted.controllers, workers)
            if not same or at != addresses:
                with_workers = f" with {known.workers} workers each" if known.workers > 1 else ""
                raise ClusterError(
                    f"{self._root} has a cluster of {len(known.nodes)} nodes{with_workers} at {', '.join(addresses)}:"
                    " start it with the same nodes, or use another directory"
                )
            if tls and not known.nodes[0].peer_address:
                raise ClusterError(f"{self._root} has a cluster without TLS: use another directory")
            self._bring_up_to_date(known, settings, wanted.env, kafka=kafka)
            return known
        self._check(settings, nodes, tls=tls, kafka=kafka)
        if base_port is None:
            self._ports = ReservedPorts(nodes * (1 + tls + kafka), HOST, beside=workers)
            ports = self._ports.ports
        else:
            ports = [base_port + i * workers for i in range(nodes * (1 + tls + kafka))]
        records = [NodeRecord(node_id, f"{HOST}:{port}") for node_id, port in enumerate(ports[:nodes], start=1)]
        others = iter(f"{HOST}:{port}" for port in ports[nodes:])
        for record in records if tls else ():
            record.peer_address = next(others)
        for record in records if kafka else ():
            record.kafka_address = next(others)
        wanted.nodes = records
        return wanted

    def _bring_up_to_date(
        self, known: ClusterState, settings: dict[str, str], env: dict[str, str], *, kafka: bool
    ) -> None:
        """Changes the settings of a cluster that does not run, and adds a listener for Kafka's clients if wanted."""
        adds_kafka = kafka and not known.nodes[0].kafka_address
        changed = {name: value for name, value in settings.items() if known.settings.get(name) != value}
        running = any(self._process(node).is_running() for node in known.nodes)
        if running and (adds_kafka or changed):
            what = "without a listener for Kafka's clients" if adds_kafka else f"without {_pairs(changed)}"
            raise ClusterError(
                f"the cluster in {self._root} is running {what}: stop it first (quorumlog cluster down --data-dir"
                f" {self._root}), then start it again"
            )
        has_kafka, has_tls = kafka or bool(known.nodes[0].kafka_address), bool(known.nodes[0].peer_address)
        if settings or self._node_settings:
            self._check(known.settings | settings, len(known.nodes), tls=has_tls, kafka=has_kafka)
        if adds_kafka:
            self._add_kafka_addresses(known)
        known.settings.update(settings)
        known.env.update(env)

    def _check(self, settings: dict[str, str], nodes: int, *, tls: bool, kafka: bool) -> None:
        check_settings(settings, self._node_settings, nodes=nodes, tls=tls, kafka=kafka)

    def _add_kafka_addresses(self, known: ClusterState) -> None:
        """Chooses ports for Kafka's clients: those after the ports that the nodes have, if they are free."""
        taken = [address for node in known.nodes for address in (node.address, node.peer_address) if address]
        first = max(int(address.rpartition(":")[2]) for address in taken) + known.workers
        ports = list(range(first, first + len(known.nodes) * known.workers, known.workers))
        if not are_free(HOST, range(first, ports[-1] + known.workers)):
            self._ports = ReservedPorts(len(known.nodes), HOST, beside=known.workers)
            ports = self._ports.ports
        for record, port in zip(known.nodes, ports, strict=True):
            record.kafka_address = f"{HOST}:{port}"

    def _process(self, node: NodeRecord) -> NodeProcess:
        return NodeProcess(
            node.node_id,
            node.address,
            self._root / f"node-{node.node_id}",
            self._root / f"node-{node.node_id}.log",
            pid=node.pid,
            started=node.started,
        )

    def _node(self, node: int) -> NodeProcess:
        process = self._member(node)
        if node not in self._nodes:
            raise ClusterError(f"node {node} is a worker of node {process.node_id}: start and stop that one")
        return process

    def _member(self, member: int) -> NodeProcess:
        """Returns the process of a node, or that of the node of a worker."""
        for node, process in self._nodes.items():
            if member == node or member in self._members(node):
                return process
        raise ClusterError(f"node {member} does not exist: the nodes are {', '.join(map(str, self._nodes))}")

    def _members(self, node: int) -> dict[int, str]:
        """Returns the members of the cluster that a node consists of, itself or its workers, and their addresses."""
        address = next(record.address for record in self._state.nodes if record.node_id == node)
        if self._state.workers == 1:
            return {node: address}
        return {worker_id(node, worker): at for worker, at in enumerate(self._spread(address))}

    def _spread(self, address: str) -> list[str]:
        """Returns the addresses of all workers of a node; none if the address is empty."""
        return [worker_address(address, worker) for worker in range(self._state.workers)] if address else []

    def _advertised(self, node: int) -> str:
        return self._advertise.get(node, self._at_advertised_host(self._nodes[node].address))

    def _at_advertised_host(self, address: str) -> str:
        return address if self._advertise_host is None else f"{self._advertise_host}:{address.rpartition(':')[2]}"

    def _peer_address(self, node: int) -> str:
        records = {record.node_id: record.peer_address for record in self._state.nodes}
        return records[node] or self._advertised(node)

    def _kafka_address(self, node: int) -> str:
        return next(record.kafka_address for record in self._state.nodes if record.node_id == node)

    def _kafka_flags(self, node: int) -> dict[str, str]:
        address = self._kafka_address(node)
        if not address:
            return {}
        return {
            "kafka_listen": address,
            "kafka_advertise": self._at_advertised_host(address),
            # The default of Kafka's brokers, which their clients expect. In production, a typing error should not
            # create a topic.
            "kafka_auto_create_topics_enable": "true",
        }

    def _spawn(self, node: NodeProcess) -> None:
        flags = {
            "node_id": str(node.node_id),
            "listen": node.address,
            "advertise": self._advertised(node.node_id),
            "data_dir": str(node.data_dir),
            "controllers": ",".join(
                f"{one}@{self._at_advertised_host(self._peer_address(one))}" for one in self._state.controllers
            ),
            **({"workers": str(self._state.workers)} if self._state.workers > 1 else {}),
            **self._kafka_flags(node.node_id),
            **self._state.settings,
            **{name: str(value) for name, value in self._node_settings.get(node.node_id, {}).items()},
        }
        if self._certificates is not None:
            own = node.node_id if self._state.workers == 1 else ID_MARK
            flags |= {"peer_listen": self._peer_address(node.node_id), **self._certificates.of_node(own)}
        node.spawn(flags, self._state.env, self._watched())
        self._wanted.add(node.node_id)
        if self._janitor is not None:
            assert self._janitor.stdin is not None
            self._janitor.stdin.write(f"{node.pid} {node.started}\n".encode())
            self._janitor.stdin.flush()
        self._save()

    def _watched(self) -> int | None:
        """Returns the nodes' end of the life line; on the first call it also starts the cleanup process."""
        if self._detached:
            return None
        if self._life_line is None:
            self._life_line = os.pipe()
            directory = str(self._root) if self._temporary else ""
            self._janitor = subprocess.Popen(
                [sys.executable, "-I", "-S", janitor.__file__, str(os.getpid()), directory],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                start_new_session=True,
            )
        return self._life_line[0]

    def _release(self) -> None:
        """Detaches the cluster from the cleanup process and the life line."""
        if self._janitor is not None:
            assert self._janitor.stdin is not None
            self._janitor.stdin.write(b"done\n")
            self._janitor.stdin.close()
            self._janitor.wait(_KILLED_TIMEOUT_S)
            self._janitor = None
        if self._life_line is not None:
            for descriptor in self._life_line:
                os.close(descriptor)
            self._life_line = None

    def _save(self) -> None:
        for record in self._state.nodes:
            node = self._nodes[record.node_id]
            record.pid, record.started = node.pid, node.started
        self._state.save(self._root)

    def _view(self, addresses: dict[int, str]) -> ClusterView:
        return ClusterView(addresses, None if self._certificates is None else self._certificates.pair(ADMIN))

    def _running_addresses(self) -> dict[int, str]:
        running = (node.node_id for node in self._nodes.values() if node.is_running())
        return {member: address for node in running for member, address in self._members(node).items()}

    def _status(self, member: int, view: ClusterView) -> NodeStatus:
        address, pid = self.address(member), self.pid(member)
        # A worker that is about to be started again is not running either.
        if pid is None:
            return NodeStatus(member, address, None, False, False, "it is not running")
        seen = view.node(member)
        return NodeStatus(member, address, pid, True, seen.ready, seen.reason)


def _pairs(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def _load(root: Path) -> ClusterState | None:
    try:
        return ClusterState.load(root)
    except ValueError as error:
        raise ClusterError(str(error)) from None
