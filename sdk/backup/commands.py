"""Backup operations as calls that do not need asyncio: each runs to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar, Unpack

from quorumlog.sdk.backup.creation import BackupCreation, BackupReport
from quorumlog.sdk.backup.manifest import require_manifest
from quorumlog.sdk.backup.restoration import BackupRestoration, RestoreOptions, RestoreReport
from quorumlog.sdk.backup.store import open_store
from quorumlog.sdk.backup.verification import BackupVerification, VerificationReport
from quorumlog.sdk.cluster.cluster import DEFAULT_BOOTSTRAP_SERVERS, Cluster, parse_bootstrap_servers
from quorumlog.sdk.runtime.backoff import Backoff
from quorumlog.sdk.runtime.client_runtime import SYSTEM_RUNTIME
from quorumlog.sdk.runtime.security import ClientSecurity, SecurityOptions

#: Time limit of one request, leader elections included. A backup makes as many as it needs.
QUESTION_S = 60.0
BOOTSTRAP_S = 3.0

Report = TypeVar("Report")


def _nobody_asks(_size_bytes: int) -> None:
    """Ignores progress."""


def create_backup(
    location: str,
    *,
    bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP_SERVERS,
    topics: Sequence[str] | None = None,
    progress: Callable[[int], None] = _nobody_asks,
    **security: Unpack[SecurityOptions],
) -> BackupReport:
    """Creates a backup of a running cluster, or adds new data to an existing one.

    Arguments:
        location: a directory, or an fsspec address such as ``s3://bucket/prefix``.
        topics: only these; None: all except the cluster's own.
        progress: called with the bytes copied so far.
        security: options for TLS and authentication, as for clients.

    Raises:
        IllegalArgumentError: the location has a backup of another cluster.
        IllegalStateError: a log has lost records since the last backup, or is trimmed faster than it is copied.
        QuorumlogError: something could not be read or written. Another call resumes.
    """
    store = open_store(location)

    async def work(cluster: Cluster) -> BackupReport:
        return await BackupCreation(cluster, store, topics, QUESTION_S, progress).create()

    return _run(bootstrap_servers, ClientSecurity(**security), work)


def verify_backup(location: str, *, progress: Callable[[int], None] = _nobody_asks) -> VerificationReport:
    """Reads a whole backup, and reports its problems. No cluster is needed.

    Arguments:
        location: as for :func:`create_backup`.
        progress: called with the bytes read so far.

    Raises:
        IllegalStateError: the location has no backup.
    """
    return BackupVerification(open_store(location), location, progress).verify()


def restore_backup(
    location: str,
    *,
    bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP_SERVERS,
    topics: Sequence[str] | None = None,
    replication_factor: int | None = None,
    configs: Mapping[str, str] | None = None,
    progress: Callable[[int], None] = _nobody_asks,
    **security: Unpack[SecurityOptions],
) -> RestoreReport:
    """Restores a backup into a fresh cluster.

    It restores topics with their ids and settings, records at their offsets, idempotent producers, producer names, and
    committed offsets of groups.

    Arguments:
        location: as for :func:`create_backup`.
        topics: only these; None: all.
        replication_factor: of all topics; None: as in the backup.
        configs: settings that replace those in the backup, for all topics.
        progress: called with the bytes restored so far.
        security: options for TLS and authentication, as for clients.

    Raises:
        TopicAlreadyExistsError: the cluster has a topic of such a name.
        PolicyViolationError: the cluster is not fresh.
        CorruptBackupError: a file is damaged.
        QuorumlogError: something could not be read or written. Another call resumes.
    """
    store = open_store(location)
    options = RestoreOptions(topics, replication_factor, dict(configs or {}), QUESTION_S)

    async def work(cluster: Cluster) -> RestoreReport:
        await cluster.ask_metadata([])
        manifest = await cluster.runtime.run_blocking(require_manifest, store, location)
        return await BackupRestoration(cluster, store, manifest, options, progress).restore()

    return _run(bootstrap_servers, ClientSecurity(**security), work)


def _run(
    bootstrap_servers: str | Sequence[str], security: ClientSecurity, work: Callable[[Cluster], Awaitable[Report]]
) -> Report:
    addresses = parse_bootstrap_servers(bootstrap_servers)

    async def run() -> Report:
        cluster = Cluster(
            addresses,
            request_timeout_s=QUESTION_S,
            bootstrap_timeout_s=BOOTSTRAP_S,
            backoff=Backoff(runtime=SYSTEM_RUNTIME),
            client_id="quorumlog-backup",
            security=security,
        )
        try:
            return await work(cluster)
        finally:
            await cluster.close()

    return asyncio.run(run())
