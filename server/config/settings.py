"""Settings of a node: flags override the environment (``QUORUMLOG_*``), which overrides a TOML file and the defaults.

Every setting has one name: ``node_id`` in the file is ``QUORUMLOG_NODE_ID`` in the environment and ``--node-id`` on
the command line.
"""

from __future__ import annotations

import difflib
import functools
import os
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, TypeAdapter, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from quorumlog.raft.options import RaftOptions
from quorumlog.server.config.consumer_group_limits import ConsumerGroupLimits
from quorumlog.server.config.options import (
    AuthorizationOptions,
    BalanceOptions,
    ConfiguredSetting,
    ConsumerGroupOptions,
    Endpoint,
    NodeLimits,
    NodeOptions,
    PairFiles,
    RepairOptions,
    ScrubOptions,
    SettingSource,
)
from quorumlog.server.config.plain_numbers import parse_integer
from quorumlog.server.config.setting_values import (
    Address,
    Algorithms,
    ClaimText,
    Controllers,
    CopyRate,
    Count,
    Milliseconds,
    ScrubRate,
    SizeBytes,
    Users,
    Workers,
    parse_address,
)
from quorumlog.server.config.transaction_limits import TransactionLimits
from quorumlog.server.step.bearer_tokens import KNOWN_ALGORITHMS, TokenOptions
from quorumlog.server.step.request_context import Listener
from quorumlog.wire.request_limits import LEAST_THROTTLE

ENV_PREFIX = "QUORUMLOG_"
#: An environment variable this similar to a setting's name is a typing error; others may belong to another program.
_TYPO_LIKENESS = 0.85
_MS = 1_000
_EVERY_ADDRESS = ("0.0.0.0", "::")
#: The minimum session timeout of a group member in election timeouts, and in milliseconds by default.
ELECTIONS_PER_SESSION = 3
LEAST_SESSION_MS = 2_000
#: Heartbeat intervals in the smallest age limit for metadata: the age is checked every fifth of the limit.
INTERVALS_OF_IMAGE_AGE = 20


class SettingsError(Exception):
    """Raised when a setting is wrong. The message is one line: the setting, its value, and what is expected."""


#: Values of options where no setting says otherwise: the defaults of settings are taken from here.
_NODE = NodeOptions(node_id=0, address="", controllers={})
_LIMITS, _BALANCE, _REPAIR, _SCRUB = _NODE.limits, _NODE.balance, _NODE.repair, _NODE.scrub
_GROUPS, _AUTHORIZATION, _RAFT = _NODE.groups, _NODE.authorization, _NODE.raft
_TOKENS: dict[str, Any] = {each.name: each.default for each in fields(TokenOptions)}

_A_TIME = "a whole number of milliseconds"
_A_SIZE = "a whole number of bytes, at least 1024"
#: Annotations of whole-number fields, as pydantic reports them.
_WHOLE_NUMBERS = (int, Milliseconds | None)
_AN_ADDRESS = "host:port, for example 127.0.0.1:19092"


class Settings(BaseSettings):
    """All settings of a node. A field's description says which values are expected."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, extra="forbid", frozen=True, env_ignore_empty=True)
    #: Given values and their sources, the effective one first, by name.
    _given: Mapping[str, list[tuple[object, SettingSource]]] = PrivateAttr(default_factory=dict)

    node_id: int = Field(ge=0, le=2**31 - 1, description="a whole number, unique in the cluster")
    listen: Address = Field(description=f"{_AN_ADDRESS}: where this node serves clients, and without TLS its peers")
    data_dir: Path = Field(description="a directory of this node alone; created if missing")
    controllers: Controllers = Field(
        description="id@host:port,... of the voters of the metadata quorum, the same on every node at formation"
    )
    advertise: Address | None = Field(None, description=f"{_AN_ADDRESS}: where others reach this node, if not listen")
    peer_listen: Address | None = Field(
        None, description=f"{_AN_ADDRESS}: where this node serves its peers, by certificate; with tls_certificate"
    )
    peer_socket_listen: Address | None = Field(
        None,
        description=f"{_AN_ADDRESS}: where peers send frames over sockets; if not set, a port that the system chooses"
        " beside the listener for peers",
    )
    password_listen: Address | None = Field(
        None, description=f"{_AN_ADDRESS}: where this node serves clients with a password or a token, over TLS"
    )
    plaintext_listen: Address | None = Field(
        None, description=f"{_AN_ADDRESS}: where this node serves without TLS while a cluster migrates to TLS"
    )
    tls_certificate: Path | None = Field(None, description="a file in PEM: this node's certificate")
    tls_key: Path | None = Field(None, description="a file in PEM: its key, readable by its owner only")
    node_ca: Path | None = Field(None, description="a file in PEM: the authorities of nodes' certificates")
    client_ca: Path | None = Field(None, description="a file in PEM: the authorities of clients' certificates")
    security_inter_broker_protocol: Literal["PLAINTEXT", "SSL"] | None = Field(
        None, description="PLAINTEXT or SSL: how this node connects to its peers; by default SSL if peer_listen is set"
    )
    kafka_listen: Address | None = Field(None, description=f"{_AN_ADDRESS}: where this node serves Kafka's clients")
    kafka_advertise: Address | None = Field(
        None, description=f"{_AN_ADDRESS}: where Kafka's clients reach this node, if not kafka_listen"
    )
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_SSL"] | None = Field(
        None,
        description="PLAINTEXT, SSL (clients by certificate) or SASL_SSL (by password or token): how Kafka's clients"
        " authenticate; by default as on password_listen, otherwise as on listen",
    )
    kafka_auto_create_topics_enable: bool = Field(
        False, description="true to create topics that Kafka's clients name, false to report them as missing"
    )
    kafka_max_connections_per_ip: Count = Field(
        _NODE.kafka_connections_per_ip,
        description="a whole number from 1 to 1000000: connections of Kafka's clients from one address",
    )
    kafka_max_request_bytes: SizeBytes = Field(
        _LIMITS.kafka_request_bytes,
        description=f"{_A_SIZE}: maximum size of a request of Kafka's clients, as brokers' socket.request.max.bytes",
    )
    rack: str = Field(_NODE.rack, max_length=255, description="the node's rack, for placing replicas")
    machine: str = Field(
        _NODE.machine,
        max_length=255,
        description="the same name for all nodes of one machine, which never hold two replicas of a partition",
    )
    workers: Workers = Field(
        1,
        description="a whole number from 1 to 64, or auto for one less than the cores: nodes that share this machine,"
        " on consecutive ports",
    )
    witness_only: bool = Field(
        _NODE.witness_only, description="true for a small node that accepts witnesses, and no replicas"
    )
    insecure: bool = Field(False, description="true to listen beyond loopback without TLS and authentication")
    authorization: bool = Field(
        _AUTHORIZATION.enabled, description="true to refuse requests that no ACL allows (quorumlog acls)"
    )
    super_users: Users = Field(
        "",
        validate_default=True,
        description="User:NAME,... that may do everything; at least one if authorization is on",
    )
    audit_log: Path | None = Field(
        None, description="a file for JSON lines: refused requests and changes, with their principals"
    )
    connections_max_reauth_ms: Annotated[int, Field(ge=2_000, le=86_400_000)] = Field(
        _NODE.session_lifetime_us // _MS,
        description=f"{_A_TIME}, at least 2000: how long an authenticated session is valid; clients renew it",
    )
    sasl_oauthbearer_jwks_file: Path | None = Field(
        None, description="a file of public keys (JWKS) that only its owner may write: they verify bearer tokens"
    )
    sasl_oauthbearer_expected_issuer: ClaimText | None = Field(None, description="the exact value of iss in tokens")
    sasl_oauthbearer_expected_audience: ClaimText | None = Field(
        None, description="the exact value of aud, or of one of its items, in tokens"
    )
    sasl_oauthbearer_sub_claim_name: ClaimText = Field(
        _TOKENS["name_claim"], description="the claim of tokens that names the user"
    )
    sasl_oauthbearer_algorithms: Algorithms = Field(
        ",".join(_TOKENS["algorithms"]),
        validate_default=True,
        description=f"a list of {', '.join(KNOWN_ALGORITHMS)}: how tokens may be signed",
    )
    sasl_oauthbearer_clock_skew_seconds: Annotated[int, Field(ge=0, le=300)] = Field(
        _TOKENS["clock_skew_s"],
        description="a whole number of seconds from 0 to 300: how early by this node's clock a token may be used",
    )
    sasl_oauthbearer_shared_users: Users = Field(
        "",
        validate_default=True,
        description="User:NAME,... of super users, and of users with a password, that a token may name",
    )
    acl_image_max_age_ms: Annotated[int, Field(ge=0, le=86_400_000)] = Field(
        _AUTHORIZATION.image_max_age_ms,
        description="0, or a whole number of milliseconds, at least 20 times heartbeat_interval_ms: this node serves"
        " records only by ACLs that are no older",
    )
    metrics_listen: Address | None = Field(None, description=f"{_AN_ADDRESS}: where Prometheus metrics are served")
    metrics_tls_listen: Address | None = Field(
        None,
        description=f"{_AN_ADDRESS}: where metrics are served with TLS, by certificate of a user; with tls_certificate",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        _NODE.log_level, description="debug, info, warning or error"
    )
    log_format: Literal["json", "console"] = Field("console", description="json or console")

    election_timeout_ms: Milliseconds = Field(
        _RAFT.election_timeout_us // _MS, description=f"{_A_TIME}, at least twice heartbeat_interval_ms"
    )
    heartbeat_interval_ms: Milliseconds = Field(_NODE.heartbeat_interval_us // _MS, description=_A_TIME)
    replica_lag_time_max_ms: Milliseconds = Field(_NODE.replica_lag_time_max_us // _MS, description=_A_TIME)
    broker_heartbeat_interval_ms: Milliseconds = Field(_NODE.broker_heartbeat_interval_us // _MS, description=_A_TIME)
    broker_session_timeout_ms: Milliseconds = Field(
        _NODE.broker_session_timeout_us // _MS, description=f"{_A_TIME}, at least twice broker_heartbeat_interval_ms"
    )
    auto_leader_rebalance_enable: bool = Field(
        _BALANCE.enabled, description="true to return leaderships to the preferred leaders automatically"
    )
    feature_upgrade: Literal["automatic", "manual"] = Field(
        "automatic", description="automatic, or manual to wait for quorumlog features upgrade"
    )
    leader_imbalance_check_interval_seconds: Annotated[int, Field(ge=1, le=86_400)] = Field(
        _BALANCE.check_interval_us // 1_000_000, description="a whole number of seconds from 1 to 86400"
    )
    producer_id_expiration_ms: Milliseconds = Field(
        _NODE.producer_id_expiration_us // _MS,
        description=f"{_A_TIME}: how long a partition remembers a silent producer without a name",
    )
    storage_stall_ms: Milliseconds = Field(_NODE.storage_stall_us // _MS, description=_A_TIME)
    stop_timeout_ms: Milliseconds = Field(_NODE.stop_timeout_us // _MS, description=_A_TIME)

    storage_map_size_bytes: Annotated[int, Field(ge=1 << 24, le=1 << 46)] = Field(
        1 << 40, description="a whole number of bytes, at least 16 MiB: maximum size of the storage"
    )
    storage_reserve_bytes: SizeBytes = Field(_LIMITS.storage_reserve_bytes, description=_A_SIZE)
    max_request_bytes: SizeBytes = Field(_LIMITS.request_bytes, description=_A_SIZE)
    max_batch_bytes: SizeBytes = Field(_LIMITS.batch_bytes, description=_A_SIZE)
    max_fetch_bytes: SizeBytes = Field(_LIMITS.fetch_bytes, description=_A_SIZE)
    max_pending_produces: Count = Field(_LIMITS.pending_produces, description="a whole number from 1 to 1000000")
    max_parked_fetches: Count = Field(_LIMITS.parked_fetches, description="a whole number from 1 to 1000000")
    max_connections: Count = Field(10_000, description="a whole number from 1 to 1000000: connections of each listener")
    compaction_interval_ms: Milliseconds = Field(
        _NODE.compaction_interval_us // _MS,
        description=f"{_A_TIME}: how often leaders check whether partitions are worth compacting",
    )
    damaged_storage: Literal["keep", "move-aside"] = Field("keep", description="keep or move-aside")
    scrub_bytes_per_second: ScrubRate = Field(
        _SCRUB.bytes_per_second,
        description="a whole number of bytes that the scrub of the storage reads per second; 0: no scrub",
    )
    scrub_interval_ms: Milliseconds = Field(
        _SCRUB.interval_ms, description=f"{_A_TIME}: how often the scrub starts a pass over the whole storage"
    )
    compaction_bytes_per_second: SizeBytes = Field(
        _LIMITS.compaction_bytes_per_second, description=f"{_A_SIZE}: maximum that compaction reads per second"
    )
    partition_rebalance_interval_ms: Annotated[int, Field(ge=0, le=86_400_000)] = Field(
        _REPAIR.rebalance_interval_us // _MS,
        description=f"{_A_TIME}: how often partitions are spread evenly automatically; 0: never",
    )
    replica_recovery_after_ms: Annotated[int, Field(ge=0, le=1 << 42)] = Field(
        _REPAIR.recovery_after_us // _MS,
        description=f"{_A_TIME}: replicas of a node that is down for longer are recreated on others; 0: never",
    )
    replica_copy_bytes_per_second: CopyRate = Field(
        _LIMITS.copy_bytes_per_second,
        description=f"0 for no limit, or {LEAST_THROTTLE} bytes and more: maximum that a node sends per second for"
        " moved replicas",
    )
    group_coordinators: Annotated[int, Field(ge=1, le=1_000)] = Field(
        _GROUPS.coordinators,
        description="a whole number from 1 to 1000: coordinators of consumer groups; used when they are created",
    )
    group_coordinators_replication_factor: Annotated[int, Field(ge=0, le=7)] = Field(
        _GROUPS.coordinators_factor,
        description="1, 3, 5 or 7 replicas of each coordinator, or 0: 3 in a cluster of 3 nodes and more, otherwise 1",
    )
    offsets_retention_ms: Annotated[int, Field(ge=1_000, le=1 << 42)] = Field(
        _GROUPS.offsets_retention_ms,
        description=f"{_A_TIME}, at least 1000: how long unused committed offsets are kept",
    )
    transaction_max_timeout_ms: Milliseconds = Field(
        _NODE.transactions.max_timeout_ms,
        description=f"{_A_TIME}: the longest time for which a producer may request to have a transaction open",
    )
    group_min_session_timeout_ms: Milliseconds | None = Field(
        None,
        description=f"{_A_TIME}, at least three times election_timeout_ms (by default that, and at least 2000): the"
        " shortest session timeout that a member may request",
    )
    group_max_session_timeout_ms: Milliseconds = Field(
        _GROUPS.limits.max_session_timeout_ms,
        description=f"{_A_TIME}, at least group_min_session_timeout_ms: the longest session timeout that a member may"
        " request",
    )
    group_session_timeout_ms: Milliseconds | None = Field(
        None,
        description=f"{_A_TIME}, between the two above: session timeout of members that request none (by default"
        " 45000)",
    )
    group_initial_rebalance_delay_ms: Annotated[int, Field(ge=0, le=60_000)] = Field(
        _GROUPS.limits.initial_rebalance_delay_ms,
        description=f"{_A_TIME}, at most 60000: how long a classic group's first rebalance waits for further members",
    )
    metadata_checkpoint_entries: Count = Field(
        _NODE.metadata_checkpoint_entries,
        description="a whole number from 1 to 1000000: metadata entries after which a snapshot replaces them",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _in_plain_digits(cls, value: object, info: ValidationInfo) -> object:
        """Refuses text that only Python reads as a whole number, such as ``1_000`` and ``5.0``."""
        assert info.field_name is not None
        if isinstance(value, str) and cls.model_fields[info.field_name].annotation in _WHOLE_NUMBERS:
            try:
                return parse_integer(value.strip())
            except ValueError as problem:
                raise PydanticCustomError("int_parsing", str(problem)) from None
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Reads only what ``load`` passes: it queries the sources itself, so that errors can name the source of a
        value."""
        return (init_settings,)

    @property
    def address(self) -> str:
        """The address at which peers reach this node."""
        return self.advertised(self.peer_listener)

    @property
    def has_tls(self) -> bool:
        """True if the node serves TLS."""
        return self.tls_certificate is not None

    @property
    def peer_listener(self) -> Listener:
        """The kind of listener at which this node dials its peers."""
        wanted = self.security_inter_broker_protocol or ("SSL" if self.peer_listen is not None else "PLAINTEXT")
        return Listener.PEER if wanted == "SSL" else Listener.PLAINTEXT

    @property
    def peer_socket_place(self) -> tuple[str, int] | None:
        """Host and port for sockets of peers; port 0: the system chooses one. None: peers reach this node at another
        address than it listens on, so that a port beside it would lead past what is in between.
        """
        if self.peer_socket_listen is not None:
            return parse_address(self.peer_socket_listen)
        host, port = parse_address(self.listeners[self.peer_listener])
        reached = parse_address(self.address)
        return (host, 0) if reached == (host, port) or (host in _EVERY_ADDRESS and reached[1] == port) else None

    @property
    def listeners(self) -> dict[Listener, str]:
        """The addresses (host:port) that the node listens on, by kind."""
        if not self.has_tls:
            return {Listener.PLAINTEXT: self.listen}
        wanted = {
            Listener.PEER: self.peer_listen,
            Listener.CLIENT: self.listen,
            Listener.PASSWORD: self.password_listen,
            Listener.PLAINTEXT: self.plaintext_listen,
        }
        return {listener: address for listener, address in wanted.items() if address is not None}

    @property
    def kafka_proof(self) -> Listener | None:
        """The listener whose kind of authentication applies to Kafka clients; None: they are not authenticated."""
        by_default = "PLAINTEXT" if not self.has_tls else "SSL" if self.password_listen is None else "SASL_SSL"
        proofs = {"SSL": Listener.CLIENT, "SASL_SSL": Listener.PASSWORD}
        return proofs.get(self.kafka_security_protocol or by_default)

    def advertised(self, listener: Listener) -> str:
        """Returns the address at which others reach a listener: the listen address, with the advertised host if one
        is set."""
        address = self.listeners[listener]
        if self.advertise is None:
            return address
        if address == self.listen:
            return self.advertise
        return f"{self.advertise.rpartition(':')[0]}:{address.rpartition(':')[2]}"

    def pair_files(self, listener: Listener) -> PairFiles:
        """Returns the files for a listener with TLS; those of PEER are also used to dial peers."""
        assert self.tls_certificate is not None and self.tls_key is not None, "checked by node_options"
        authorities = {Listener.PEER: self.node_ca, Listener.CLIENT: self.client_ca}.get(listener)
        return PairFiles(self.tls_certificate, self.tls_key, authorities)

    def _check_kafka(self) -> None:
        for name in ("kafka_advertise", "kafka_security_protocol"):
            if getattr(self, name) is not None and self.kafka_listen is None:
                raise SettingsError(f"{name} is set without kafka_listen: expected {_expected('kafka_listen')}")
        if self.kafka_proof is not None and not self.has_tls:
            raise SettingsError(
                f"kafka_security_protocol is {self.kafka_security_protocol} without tls_certificate: expected"
                f" {_expected('tls_certificate')}"
            )

    def node_options(self) -> NodeOptions:
        """Returns the options that the node is built with.

        Raises:
            SettingsError: values that are valid on their own contradict each other.
        """
        self._check_tls()
        self.token_options()
        self._check_kafka()
        own = self.controllers.get(self.node_id, self.address)
        if parse_address(own)[1] != parse_address(self.address)[1]:
            raise SettingsError(
                f"controllers lists node {self.node_id} at {own}, but it is reached at {self.address}:"
                " give the same port in controllers and in listen (or advertise, or peer_listen)"
            )
        if self.broker_session_timeout_ms < 2 * self.broker_heartbeat_interval_ms:
            raise SettingsError(_wrong("broker_session_timeout_ms", self.broker_session_timeout_ms, "a setting"))
        if self.election_timeout_ms < 2 * self.heartbeat_interval_ms:
            raise SettingsError(_wrong("election_timeout_ms", self.election_timeout_ms, "a setting"))
        if self.authorization and not self.super_users:
            # No client could ever create the first ACL, or repair the last one.
            raise SettingsError(_wrong("super_users", "", "with authorization"))
        if self.authorization and self.insecure:
            raise SettingsError(
                "authorization is on, but insecure admits unauthenticated clients from everywhere: remove"
                " one of the two"
            )
        return NodeOptions(
            node_id=self.node_id,
            address=self.address,
            controllers=self.controllers,
            endpoints=self._endpoints(),
            peer_listener=self.peer_listener,
            rack=self.rack,
            machine=self.machine,
            witness_only=self.witness_only,
            version=version("quorumlog"),
            data_dir=str(self.data_dir.absolute()),
            log_level=self.log_level,
            kafka_connections_per_ip=self.kafka_max_connections_per_ip,
            configured=self._configured(),
            raft=self._raft_options(),
            limits=self._limits(),
            balance=BalanceOptions(
                enabled=self.auto_leader_rebalance_enable,
                check_interval_us=self.leader_imbalance_check_interval_seconds * 1_000_000,
            ),
            raises_features=self.feature_upgrade == "automatic",
            groups=self._group_options(),
            transactions=TransactionLimits(max_timeout_ms=self.transaction_max_timeout_ms),
            repair=RepairOptions(
                rebalance_interval_us=self.partition_rebalance_interval_ms * _MS,
                recovery_after_us=self.replica_recovery_after_ms * _MS,
            ),
            authorization=self._authorization_options(),
            scrub=ScrubOptions(self.scrub_bytes_per_second, self.scrub_interval_ms),
            session_lifetime_us=self.connections_max_reauth_ms * _MS,
            heartbeat_interval_us=self.heartbeat_interval_ms * _MS,
            replica_lag_time_max_us=self.replica_lag_time_max_ms * _MS,
            broker_heartbeat_interval_us=self.broker_heartbeat_interval_ms * _MS,
            broker_session_timeout_us=self.broker_session_timeout_ms * _MS,
            storage_stall_us=self.storage_stall_ms * _MS,
            stop_timeout_us=self.stop_timeout_ms * _MS,
            metadata_checkpoint_entries=self.metadata_checkpoint_entries,
            compaction_interval_us=self.compaction_interval_ms * _MS,
            producer_id_expiration_us=self.producer_id_expiration_ms * _MS,
        )

    def _raft_options(self) -> RaftOptions:
        return RaftOptions(
            election_timeout_us=self.election_timeout_ms * _MS,
            heartbeat_interval_us=self.heartbeat_interval_ms * _MS,
            # A data replica counts as silent after three missed heartbeats.
            witness_silence_us=max(_RAFT.witness_silence_us, 3 * self.heartbeat_interval_ms * _MS),
        )

    def _limits(self) -> NodeLimits:
        return NodeLimits(
            request_bytes=self.max_request_bytes,
            kafka_request_bytes=self.kafka_max_request_bytes,
            batch_bytes=self.max_batch_bytes,
            fetch_bytes=self.max_fetch_bytes,
            pending_produces=self.max_pending_produces,
            parked_fetches=self.max_parked_fetches,
            storage_reserve_bytes=self.storage_reserve_bytes,
            storage_sharers=self.workers if isinstance(self.workers, int) else 1,
            compaction_bytes_per_second=self.compaction_bytes_per_second,
            copy_bytes_per_second=self.replica_copy_bytes_per_second,
        )

    def with_values(self, changes: Mapping[str, object]) -> Settings:
        """Returns these settings with other values of some.

        Their sources stay those of the values that they replace, or are that of ``node_id``, from which others derive.
        """
        copied = self.model_copy(update=dict(changes))
        derived = list(self._given.get("node_id", ()))[:1]
        copied._given = {**self._given, **{name: self._given.get(name, derived) for name in changes}}
        return copied

    def _configured(self) -> tuple[ConfiguredSetting, ...]:
        """Returns every setting with its values and their sources."""
        configured = []
        for name, field in type(self).model_fields.items():
            given = list(self._given.get(name, ()))
            if given:
                given[0] = (getattr(self, name), given[0][1])
            if not field.is_required():
                given.append((field.default, SettingSource.DEFAULT))
            values = tuple((setting_text(value), source) for value, source in given)
            configured.append(ConfiguredSetting(name, values))
        return tuple(configured)

    def token_options(self) -> TokenOptions | None:
        """Returns the requirements on bearer tokens; None if tokens are not accepted.

        Raises:
            SettingsError: a setting that another one requires is missing.
        """
        if self.sasl_oauthbearer_jwks_file is None:
            for name in sorted(self.model_fields_set):
                if name.startswith("sasl_oauthbearer_"):
                    expected = _expected("sasl_oauthbearer_jwks_file")
                    raise SettingsError(f"{name} is set without sasl_oauthbearer_jwks_file: expected {expected}")
            return None
        needed = ["sasl_oauthbearer_expected_issuer", "sasl_oauthbearer_expected_audience"]
        if self.kafka_listen is None or self.kafka_proof is not Listener.PASSWORD:
            needed.append("password_listen")
        for name in needed:
            if getattr(self, name) is None:
                raise SettingsError(f"{name} is not set beside sasl_oauthbearer_jwks_file: expected {_expected(name)}")
        assert self.sasl_oauthbearer_expected_issuer is not None and self.sasl_oauthbearer_expected_audience is not None
        return TokenOptions(
            key_file=self.sasl_oauthbearer_jwks_file,
            issuer=self.sasl_oauthbearer_expected_issuer,
            audience=self.sasl_oauthbearer_expected_audience,
            name_claim=self.sasl_oauthbearer_sub_claim_name,
            algorithms=self.sasl_oauthbearer_algorithms,
            clock_skew_s=self.sasl_oauthbearer_clock_skew_seconds,
        )

    def _endpoints(self) -> tuple[Endpoint, ...]:
        places = ((listener, self.advertised(listener).rpartition(":")) for listener in self.listeners)
        found = [Endpoint(listener, host, int(port)) for listener, (host, _, port) in places] if self.has_tls else []
        if self.kafka_listen is not None:
            found.append(Endpoint(Listener.KAFKA, *parse_address(self.kafka_advertise or self.kafka_listen)))
        return tuple(found)

    def _check_tls(self) -> None:
        """Raises SettingsError if settings that TLS requires together are not all set."""
        needed = ("tls_key", "peer_listen", "node_ca", "client_ca")
        if self.has_tls:
            for name in needed:
                if getattr(self, name) is None:
                    raise SettingsError(f"{name} is not set beside tls_certificate: expected {_expected(name)}")
        else:
            for name in (*needed, "password_listen", "plaintext_listen", "metrics_tls_listen"):
                if getattr(self, name) is not None:
                    raise SettingsError(
                        f"{name} is set without tls_certificate: expected {_expected('tls_certificate')}"
                    )
        if self.peer_listener not in self.listeners:
            raise SettingsError(
                f"security_inter_broker_protocol is {self.security_inter_broker_protocol}, but the node does not listen"
                " so: give plaintext_listen for PLAINTEXT, tls_certificate and peer_listen for SSL"
            )

    def _authorization_options(self) -> AuthorizationOptions:
        limit_ms = self.acl_image_max_age_ms
        if limit_ms and not self.authorization:
            raise SettingsError(f"acl_image_max_age_ms is {limit_ms}, but authorization is off: no ACLs are checked")
        if 0 < limit_ms < INTERVALS_OF_IMAGE_AGE * self.heartbeat_interval_ms:
            raise SettingsError(_wrong("acl_image_max_age_ms", limit_ms, "a setting"))
        return AuthorizationOptions(
            self.authorization,
            self.super_users,
            self.audit_log is not None,
            limit_ms,
            self.sasl_oauthbearer_shared_users,
        )

    def _group_options(self) -> ConsumerGroupOptions:
        factor, longest = self.group_coordinators_replication_factor, self.group_max_session_timeout_ms
        # A leader that was cut off must notice before its successor reassigns its members' partitions.
        least = ELECTIONS_PER_SESSION * self.election_timeout_ms
        shortest = self.group_min_session_timeout_ms or max(LEAST_SESSION_MS, least)
        session = self.group_session_timeout_ms
        for name, value, is_right in (
            ("group_min_session_timeout_ms", shortest, shortest >= least),
            ("group_max_session_timeout_ms", longest, longest >= shortest),
            ("group_session_timeout_ms", session, session is None or shortest <= session <= longest),
            ("group_coordinators_replication_factor", factor, factor in (0, 1, 3, 5, 7)),
        ):
            if not is_right:
                raise SettingsError(_wrong(name, value, "a setting"))
        return ConsumerGroupOptions(
            coordinators=self.group_coordinators,
            coordinators_factor=factor,
            offsets_retention_ms=self.offsets_retention_ms,
            limits=ConsumerGroupLimits(
                min_session_timeout_ms=shortest,
                max_session_timeout_ms=longest,
                session_timeout_ms=_GROUPS.limits.session_timeout_ms if session is None else session,
                initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            ),
        )


def load(flags: Mapping[str, object], config: Path | None = None) -> Settings:
    """Returns the settings from all sources.

    Arguments:
        flags: settings from the command line, by field name; None: not given.
        config: a TOML file.

    Raises:
        SettingsError: an unknown name, a wrong or a missing value, or a file that cannot be read.
    """
    overrides = {name: value for name, value in flags.items() if value is not None}
    from_environment = _from_environment()
    from_file = {} if config is None else _from_file(config)
    origins = dict.fromkeys(from_file, f"in {config}")
    origins |= {name: f"from {ENV_PREFIX}{name.upper()}" for name in from_environment}
    origins |= {name: f"from --{name.replace('_', '-')}" for name in overrides}
    settings = _validated({**from_file, **from_environment, **overrides}, origins)
    sources = (
        (overrides, SettingSource.COMMAND_LINE),
        (from_environment, SettingSource.ENVIRONMENT),
        (from_file, SettingSource.FILE),
    )
    settings._given = {
        name: [(values[name], source) for values, source in sources if name in values] for name in origins
    }
    return settings


def parse_setting(name: str, text: str) -> Any:
    """Returns the value of a setting that is given as text.

    Raises:
        SettingsError: it is not valid.
    """
    value: object = text.strip()
    try:
        if Settings.model_fields[name].annotation in _WHOLE_NUMBERS:
            value = parse_integer(text.strip())
        return _adapter(name).validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]
        reason = first["msg"].removeprefix("Value error, ") if first["type"] == "value_error" else ""
    except ValueError:
        reason = ""
    detail = f" ({reason})" if reason else ""
    raise SettingsError(f"wrong value {text[:80]!r} for {name}{detail}: expected {_expected(name)}")


@functools.cache
def _adapter(name: str) -> TypeAdapter[Any]:
    field = Settings.model_fields[name]
    annotation: Any = field.annotation
    return TypeAdapter(Annotated[(annotation, *field.metadata)] if field.metadata else annotation)


def setting_text(value: object) -> str:
    """Returns the value of a setting as it is written in the environment; empty for one that is not set."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return ",".join(f"{key}@{each}" for key, each in value.items())
    if isinstance(value, frozenset):
        return ",".join(sorted(map(str, value)))
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def check(values: Mapping[str, object], origin: str) -> None:
    """Checks the settings that a node would be started with; the environment of this process is ignored.

    Arguments:
        values: all of them, by name.
        origin: their source, for messages.

    Raises:
        SettingsError: an unknown name, a wrong or a missing value, or values that contradict each other.
    """
    _validated(values, dict.fromkeys(values, origin)).node_options()


def _validated(values: Mapping[str, object], origins: Mapping[str, str]) -> Settings:
    for name in origins:
        if name not in Settings.model_fields:
            raise SettingsError(f"unknown setting {name!r} {origins[name]}{_suggestion(name)}")
    try:
        return Settings.model_validate(dict(values))
    except ValidationError as error:
        raise SettingsError(_explain(error, origins)) from None


def _from_environment() -> dict[str, object]:
    for variable in os.environ:
        name = variable.removeprefix(ENV_PREFIX).lower()
        if not variable.startswith(ENV_PREFIX) or name in Settings.model_fields:
            continue
        if close := difflib.get_close_matches(name, Settings.model_fields, 1, _TYPO_LIKENESS):
            intended = ENV_PREFIX + close[0].upper()
            raise SettingsError(f"unknown setting {variable} in the environment: did you mean {intended}?")
    return EnvSettingsSource(Settings)()


def _from_file(config: Path) -> dict[str, object]:
    if not config.exists():
        raise SettingsError(f"the configuration {config} does not exist")
    try:
        return TomlConfigSettingsSource(Settings, toml_file=config)()
    except OSError as error:
        raise SettingsError(f"cannot read the configuration {config}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"the configuration {config} is not TOML: {' '.join(str(error).split())}") from None


def _suggestion(name: str) -> str:
    close = difflib.get_close_matches(name.replace("-", "_").replace(".", "_"), Settings.model_fields, 1)
    return f": did you mean {close[0]!r}?" if close else f": known are {', '.join(sorted(Settings.model_fields))}"


def _explain(error: ValidationError, origins: Mapping[str, str]) -> str:
    """Returns the first problem, in one line."""
    first = error.errors()[0]
    name = str(first["loc"][0])
    if first["type"] == "missing":
        flag = f"--{name.replace('_', '-')}"
        return f"{name} is not set: give {flag}, {ENV_PREFIX}{name.upper()} or {name} in the file: {_expected(name)}"
    reason = first["msg"].removeprefix("Value error, ") if first["type"] == "value_error" else ""
    return _wrong(name, first["input"], origins.get(name, "by default"), reason)


def _wrong(name: str, value: object, origin: str, reason: str = "") -> str:
    detail = f" ({reason})" if reason else ""
    return f"wrong value {value!r} for {name} {origin}{detail}: expected {_expected(name)}"


def _expected(name: str) -> str:
    field: FieldInfo = Settings.model_fields[name]
    assert field.description, "every setting says what is expected"
    return field.description
