"""Features that README and the documentation describe as missing or refused: each is tried, and must be refused.

A statement without an attempt fails, and so does an attempt whose statement is gone. If you implement such a feature or
reword a statement, change the tables below.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from quorumlog.local import LocalCluster
from quorumlog.sdk import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    Admin,
    Consumer,
    NewTopic,
    Producer,
    QuorumlogError,
    ResourcePattern,
    ResourceType,
    TopicPartition,
    UserScramCredentialUpsertion,
)
from quorumlog.sdk.mirror.commands import MirrorOptions, mirror
from quorumlog.sdk.mirror.source import KafkaSource
from quorumlog.sdk.mirror.target_topics import TopicRules
from quorumlog.sdk.spark.errors import OptionError
from quorumlog.sdk.spark.options import parse_batch_options
from quorumlog.wire.kafka.batch import KafkaCodec
from tests.support.command_line import until
from tests.support.document_units import Unit, section_of, units
from tests.support.kafka_batches import kafka_batch, with_checksum
from tests.support.kafka_oracle import their_class
from tests.support.readme_tour import ROOT
from tests.support.refusable_requests import (
    ATTRIBUTES,
    CLOSED,
    COMPACTED,
    CREATE_TOKENS,
    DESCRIBE,
    IGNORED,
    LAST_OFFSET,
    LOGGED,
    MISSING,
    NODE_RESOURCE,
    NOW_MS,
    PASSWORD,
    RECORD_COUNT,
    RECORDS,
    ROWS,
    TOPIC,
    USER,
    Attempt,
    Rig,
    altered,
    creating,
    describing,
    electing,
    fetching,
    granting,
    limiting,
    named,
    old_batch,
    password,
    producing,
    recoded,
    replacing,
    setting,
    shaking_hands,
    unserved,
)

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    # A cluster that is started for tests creates topics by default; nodes do not.
    settings = {"kafka_security_protocol": "SASL_SSL", "kafka_auto_create_topics_enable": "false"}
    with LocalCluster(nodes=1, tls=True, kafka=True, settings=settings) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers, **cluster.client_tls) as admin:
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, PASSWORD)])
            admin.create_topics([NewTopic(TOPIC, 1, 1), NewTopic(COMPACTED, 1, 1, {"cleanup.policy": "compact"})])
        for topic in (TOPIC, COMPACTED):
            until(lambda topic=topic: cluster.leader(topic, 0) is not None, f"{topic} has a leader")  # type: ignore[misc]
        made = Rig(cluster)
        yield made
        made.close()
        assert cluster.is_running(1), cluster.log_path(1).read_text()[-2_000:]


# -- the table of Kafka's port ------------------------------------------------------------------------------------

KAFKA_PAGE, KAFKA_SECTION = "docs/use/kafka.md", "What is refused"
DELEGATION_TOKEN, USER_RESOURCE = 6, 7
LARGEST = 1 << 23

#: Attempts for a row, by its first cell. The second cell names the outcome of each.
REFUSED: dict[str, dict[str, Attempt]] = {
    "batches of a transaction without a transactional ID": {
        "Produce": producing(kafka_batch(ROWS, producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)),
    },
    "batches outside of a transaction with a transactional ID": {
        "Produce": producing(kafka_batch(ROWS), transactional_id="writer"),
    },
    "message formats 0 and 1": {f"format {magic}": producing(old_batch(magic)) for magic in (0, 1)},
    "several batches for one partition, control batches": {
        "two batches": producing(kafka_batch(ROWS), kafka_batch(ROWS)),
        "a control batch": altered(ATTRIBUTES, ">h", 0x20),
    },
    "records that some clients cannot read: counts, offsets or lengths that do not match, a wrong codec, double"
    " compression, more than 64 MiB decompressed, header keys that are not UTF-8": {
        "count": altered(RECORD_COUNT, ">i", 5),
        "offset": altered(LAST_OFFSET, ">i", 7),
        "length": altered(RECORDS, ">B", kafka_batch(ROWS)[RECORDS] + 2),
        "codec": recoded(kafka_batch(ROWS)[RECORDS:], KafkaCodec.GZIP),
        "double compression": recoded(gzip.compress(gzip.compress(kafka_batch(ROWS)[RECORDS:])), KafkaCodec.GZIP),
        "64 MiB": producing(kafka_batch([(b"k", bytes(1 << 26), NOW_MS, [])], KafkaCodec.ZSTD)),
        "header key": producing(with_checksum(kafka_batch(ROWS).replace(b"trace", b"tr\xff\xfee"))),
    },
    "a batch with a wrong checksum": {"checksum": producing(kafka_batch(ROWS)[:-1] + b"?")},
    "records without a key in a compacted topic": {
        "no key": producing(kafka_batch([(None, b"value", NOW_MS, [])]), topic=COMPACTED)
    },
    "creation of `__groups` and of the four topic names that Kafka reserves; other names may start with `__`": {
        name: creating(name)
        for name in (
            "__groups",
            "__consumer_offsets",
            "__transaction_state",
            "__share_group_state",
            "__cluster_metadata",
        )
    },
    "an empty `cleanup.policy`, `min.compaction.lag.ms` above `max.compaction.lag.ms`": {
        "no policy": creating(cleanup_policy=""),
        "policy changed": setting("cleanup.policy", ""),
        "lags": creating(min_compaction_lag_ms="60000", max_compaction_lag_ms="59999"),
        "no lag": setting("max.compaction.lag.ms", "0"),
    },
    "numbers such as `1_000`, `+5` and `5.0`: use ASCII digits only": {
        number: creating(retention_ms=number) for number in ("1_000", "+5", "5.0", "\u0665")
    },
    "unclean elections as a setting, remote storage, unknown keys, settings of nodes that need a restart": {
        "unclean elections": creating(unclean_leader_election_enable="true"),
        "remote storage": creating(remote_storage_enable="true"),
        "unknown key": creating(no_such_key="1"),
        "unknown key changed": setting("no.such.key", "1"),
        "setting that needs a restart": setting("max_connections", "5", NODE_RESOURCE, "1"),
        "node setting": setting("log.retention.ms", "1", NODE_RESOURCE, "1"),
        "node settings replaced": replacing("log.retention.ms", "1", NODE_RESOURCE, "1"),
        "settings of all nodes": setting("log.retention.ms", "1", NODE_RESOURCE, ""),
    },
    "requests for an unclean election": {"unclean": electing(1)},
    "ACLs with a host, for `DelegationToken` or `User`, or with an unknown operation": {
        "host": granting(host="127.0.0.1"),
        "DelegationToken": granting(DELEGATION_TOKEN, operation=DESCRIBE),
        "User": granting(USER_RESOURCE, operation=CREATE_TOKENS),
        "CreateTokens": granting(operation=CREATE_TOKENS),
        "unknown operation": granting(operation=99),
    },
    "quotas for client IDs and IP addresses, `request_percentage`": {
        "client ID": limiting("client-id", "producer_byte_rate"),
        "IP address": limiting("ip", "connection_creation_rate"),
        "share": limiting("user", "request_percentage"),
    },
    "passwords with fewer than 4,096 iterations, salts shorter than 16 bytes": {
        "iterations": password(iterations=4_095),
        "salt": password(salt=15),
    },
    "`max.message.bytes` below 1 KiB or above 8 MiB": {
        "small": creating(max_message_bytes="1023"),
        "large": creating(max_message_bytes=str(LARGEST + 1)),
    },
    "internal topics of Kafka, such as `__consumer_offsets`": {
        name: describing(name)
        for name in ("__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata")
    },
    "fetches by brokers, with the ID of a replica": {
        "replica_id": fetching(12, replica_id=1),
        "replica_state": fetching(17, replica_state={"replica_id": 1, "replica_epoch": 1}),
    },
    "mechanisms other than SCRAM-SHA-256, SCRAM-SHA-512, PLAIN and, if tokens are configured, OAUTHBEARER": {
        mechanism: shaking_hands(mechanism) for mechanism in ("SCRAM-SHA-1", "GSSAPI", "OAUTHBEARER")
    },
    "SaslHandshake of version 0": {"SaslHandshake": unserved("SaslHandshake", 0, sign_in=False, mechanism="PLAIN")},
    "everything else: share groups, delegation tokens, moves of replicas between directories": {
        "share groups": unserved("ShareGroupHeartbeat", 1, group_id="g", member_id="m", subscribed_topic_names=[TOPIC]),
        "delegation tokens": unserved("CreateDelegationToken", 3, max_lifetime_ms=1_000),
        "moves of replicas": unserved(
            "AlterReplicaLogDirs", 2, dirs=[{"path": "/", "topics": [{"name": TOPIC, "partitions": [0]}]}]
        ),
    },
}

#: Neighbours of refused requests, which are served.
ACCEPTED: dict[str, Attempt] = {
    "a batch": producing(kafka_batch(ROWS)),
    "a batch with less than 64 MiB": producing(kafka_batch([(b"k", bytes(1 << 20), NOW_MS, [])], KafkaCodec.ZSTD)),
    "another name with __": creating("__debezium-heartbeat.shop"),
    "one policy": creating(cleanup_policy="compact"),
    "both policies": creating(cleanup_policy="delete,compact"),
    "lags": creating(min_compaction_lag_ms="60000", max_compaction_lag_ms="60000"),
    "a number": creating(retention_ms="1000"),
    "an ACL": granting(),
    "a quota": limiting("user", "producer_byte_rate"),
    "a password": password(user="carol"),
    "a password for SCRAM-SHA-512": password(mechanism=2, user="carol"),
    "smallest batches": creating(max_message_bytes="1024"),
    "largest batches": creating(max_message_bytes=str(LARGEST)),
    "a consumer's fetch": fetching(12),
}


def expected(cell: str) -> set[str]:
    """Returns the outcomes that a row's second cell names."""
    return {*re.findall(r"`([A-Z_]+)`", cell), *(phrase for phrase in (CLOSED, LOGGED, MISSING) if phrase in cell)}


def slug(text: str) -> str:
    """Returns the beginning of a text as an id of a test."""
    return re.sub(r"\W+", "-", text).strip("-")[:40]


def refused_rows() -> list[Unit]:
    return [unit for unit in section_of(KAFKA_PAGE, KAFKA_SECTION) if len(unit.cells) == 2]


@pytest.mark.parametrize("row", refused_rows(), ids=lambda row: slug(row.cells[0]))
def test_row_is_refused(rig: Rig, row: Unit) -> None:
    """Every attempt has exactly the outcome that the table names."""
    what, response = row.cells
    assert what in REFUSED, f"row {what!r} of {KAFKA_PAGE} has no attempt: add one, or remove the row"
    assert expected(response), f"row {what!r} names no outcome that is known here"
    found = {name: attempt(rig) for name, attempt in REFUSED[what].items()}
    assert found == dict.fromkeys(REFUSED[what], expected(response))


def test_attempts_have_rows() -> None:
    assert set(REFUSED) <= {row.cells[0] for row in refused_rows()}, "attempts without a row: remove or rename them"


def test_only_listed_apis_are_served(rig: Rig) -> None:
    """The last row of the table is about all others."""
    listed = [row for row in section_of(KAFKA_PAGE, "What is served") if len(row.cells) == 2]
    names = [name for row in listed for name in row.cells[1].split(", ")]
    advertised = {each.api_key for each in rig.ask("ApiVersions", 2).api_keys}
    assert advertised == {their_class(f"{name}Request").API_KEY for name in names}


@pytest.mark.parametrize("name", ACCEPTED)
def test_neighbour_is_accepted(rig: Rig, name: str) -> None:
    """A request that differs from a refused one only in what is refused succeeds: the refusal has no other cause."""
    assert ACCEPTED[name](rig) == {"NONE"}


# -- attempts by quorumlog's own clients --------------------------------------------------------------------------

#: Errors of quorumlog's clients, and of Python, whose names are outcomes.
REFUSALS = (QuorumlogError, TypeError, AttributeError)


def outcome(call: Callable[[], object]) -> set[str]:
    """Returns the name of the error that a call raises."""
    try:
        call()
    except REFUSALS as problem:
        return {type(problem).__name__}
    return {"NONE"}


def opening(kind: type[Producer | Consumer | Admin], **options: Any) -> Attempt:
    """Opens a client with an option."""

    def attempt(rig: Rig) -> set[str]:
        return outcome(lambda: kind(**{**rig.own, **options}).close())

    return attempt


def calling(kind: type[Producer | Consumer | Admin], method: str, *arguments: Any, **named_ones: Any) -> Attempt:
    """Calls a method of a client."""

    def attempt(rig: Rig) -> set[str]:
        with kind(**rig.own) as client:
            return outcome(lambda: getattr(client, method)(*arguments, **named_ones))

    return attempt


def own_creation(**configs: str) -> Attempt:
    """Creates a topic with settings. In keys, a dot is written as an underscore."""

    def attempt(rig: Rig) -> set[str]:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        with Admin(**rig.own) as admin:
            return outcome(lambda: admin.create_topics([NewTopic(rig.new_name(), 1, 1, settings)]))

    return attempt


def own_acl_with_host(rig: Rig) -> set[str]:
    anything: Any = ACL
    resource = ResourcePattern(ResourceType.TOPIC, TOPIC)
    return outcome(lambda: anything("User:bob", ACLOperation.READ, ACLPermissionType.ALLOW, resource, host="127.0.0.1"))


def mentioning(rig: Rig) -> set[str]:
    """Mentions a topic in a request that allows the node to create it."""
    content = {"topics": [{"name": "mentioned"}], "allow_auto_topic_creation": True}
    (first,), (second,) = (rig.ask("Metadata", 12, **content).topics for _ in range(2))
    return named(first.error_code) | named(second.error_code)


SPARK_OPTIONS = {"quorumlog.bootstrap.servers": "127.0.0.1:19092", "subscribe": TOPIC}


def reading(name: str, value: str) -> Attempt:
    """Reads with an option of Spark's Kafka source."""

    def attempt(_rig: Rig) -> set[str]:
        try:
            options = parse_batch_options(SPARK_OPTIONS | {name: value})
        except OptionError:
            return {"OptionError"}
        return {IGNORED} if options == parse_batch_options(SPARK_OPTIONS) else {"NONE"}

    return attempt


@cache
def mirrored_security(rig: Rig) -> set[str]:
    """Mirrors a cluster that has a user, an ACL and a quota; returns which of them the copy has."""
    for made in (granting(), limiting("user", "producer_byte_rate"), producing(kafka_batch(ROWS))):
        assert made(rig) == {"NONE"}
    signed_in = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": rig.node_ca,
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    with LocalCluster(nodes=1) as target:
        source = KafkaSource(f"kafka://{rig.cluster.kafka_bootstrap_servers}", signed_in)
        options = MirrorOptions(rules=TopicRules((TOPIC,)))
        report = mirror(source, bootstrap_servers=target.bootstrap_servers, options=options)
        assert report.records, "nothing was copied"
        with Admin(bootstrap_servers=target.bootstrap_servers) as admin:
            copied = {
                "users": admin.describe_user_scram_credentials(),
                "ACLs": admin.describe_acls(ACLFilter()),
                "quotas": admin.describe_client_quotas(),
            }
    return {name for name, found in copied.items() if found}


# -- statements elsewhere -----------------------------------------------------------------------------------------


class Tried(NamedTuple):
    """Attempts with the same outcome."""

    outcome: set[str]
    attempts: dict[str, Attempt]


def rows(*beginnings: str) -> dict[str, Attempt]:
    """Returns the attempts of rows of the table, by the beginnings of their first cells."""
    return {
        name: attempt
        for beginning in beginnings
        for what, attempts in REFUSED.items()
        if what.startswith(beginning)
        for name, attempt in attempts.items()
    }


WRONG_OPTION, NO_METHOD, NO_ARGUMENT = {"IllegalArgumentError"}, {"AttributeError"}, {"TypeError"}
PARTITION = TopicPartition(TOPIC, 0)

NO_TRANSACTION_METHODS = Tried(
    NO_METHOD,
    {
        name: calling(Producer, name)
        for name in (
            "init_transactions",
            "begin_transaction",
            "send_offsets_to_transaction",
            "commit_transaction",
            "abort_transaction",
        )
    },
)
NO_TIERED_STORAGE = Tried({"INVALID_CONFIG"}, {"setting": creating(remote_storage_enable="true")})
NO_OWN_TIERED_STORAGE = Tried({"InvalidConfigError"}, {"setting": own_creation(remote_storage_enable="true")})
NO_CREATION = Tried(
    {"UNKNOWN_TOPIC_OR_PARTITION"},
    {"Metadata": mentioning, "Produce": producing(kafka_batch(ROWS), topic="mentioned")},
)
NO_HOSTS = Tried({"INVALID_REQUEST"}, {"host": granting(host="127.0.0.1")})
NO_OWN_HOSTS = Tried(NO_ARGUMENT, {"host": own_acl_with_host})
NO_GZIP = Tried(WRONG_OPTION, {codec: opening(Producer, compression_type=codec) for codec in ("gzip", "snappy")})
NO_NODE_SETTINGS = Tried(
    {"INVALID_CONFIG"},
    {
        "change": setting("log.retention.ms", "1", NODE_RESOURCE, "1"),
        "replacement": replacing("log.retention.ms", "1", NODE_RESOURCE, "1"),
    },
)
NO_KAFKA_OPTIONS = Tried(
    WRONG_OPTION,
    {
        name: opening(Consumer, **{name: 1})
        for name in ("api_version", "connections_max_idle_ms", "send_buffer_bytes", "receive_buffer_bytes")
    },
)

#: By page and quotation. A quotation is the whole first cell of a row, or a part of a bullet or a paragraph.
STATEMENTS: dict[tuple[str, str], tuple[Tried, ...]] = {
    ("README.md", "there is no tiered storage"): (NO_TIERED_STORAGE, NO_OWN_TIERED_STORAGE),
    ("docs/use/guarantees.md", "No tiered storage"): (NO_TIERED_STORAGE,),
    ("docs/use/guarantees.md", "Topics are not created automatically"): (NO_CREATION,),
    ("docs/use/guarantees.md", "Topics are not created automatically: use `quorumlog topics create`"): (NO_CREATION,),
    ("docs/use/guarantees.md", "no `segment.*`"): (
        Tried({"InvalidConfigError"}, {"segment.bytes": own_creation(segment_bytes="1048576")}),
    ),
    ("docs/use/guarantees.md", "codecs none, lz4, zstd"): (NO_GZIP,),
    ("docs/use/guarantees.md", "ACLs have no host column, and everything that no ACL allows is refused"): (
        NO_HOSTS,
        NO_OWN_HOSTS,
    ),
    ("docs/operate/security.md", "**No host column.**"): (NO_HOSTS, NO_OWN_HOSTS),
    (KAFKA_PAGE, "**Topics are not created automatically**"): (NO_CREATION,),
    (KAFKA_PAGE, "You cannot change them over this port"): (NO_NODE_SETTINGS,),
    (KAFKA_PAGE, "without `--throttle`"): (
        Tried(
            {"INVALID_CONFIG"},
            {"rate": setting("leader.replication.throttled.rate", "1000000", NODE_RESOURCE, "1")},
        ),
    ),
    (KAFKA_PAGE, "To change its voters, use [`quorumlog quorum`]"): (
        Tried({CLOSED, LOGGED}, {"AddRaftVoter": unserved("AddRaftVoter", 0, voter_id=2, timeout_ms=1_000)}),
    ),
    (KAFKA_PAGE, "**Create users, ACLs and quotas.** They are not copied"): (
        Tried(set(), {"mirror": mirrored_security}),
    ),
    ("docs/use/mirror.md", "**Users, ACLs and quotas** are not copied"): (Tried(set(), {"mirror": mirrored_security}),),
    (
        "docs/use/groups.md",
        "quorumlog's clients support only the new protocol (KIP-848), without client-side assignors",
    ): (
        Tried(
            WRONG_OPTION,
            {
                "protocol": opening(Consumer, group_id="g", group_protocol="classic"),
                "assignors": opening(Consumer, group_id="g", partition_assignment_strategy=["range"]),
            },
        ),
    ),
    ("docs/use/clients.md", "gzip, snappy"): (NO_GZIP,),
    ("docs/use/clients.md", "Kafka option that does not exist here"): (NO_KAFKA_OPTIONS,),
    ("docs/use/clients.md", "`init_transactions` and the related methods of the producer"): (NO_TRANSACTION_METHODS,),
    (
        "docs/use/clients.md",
        "`timeout_ms` as an argument of the consumer's `commit`, `committed`, `position` and offset lookups",
    ): (
        Tried(
            NO_ARGUMENT,
            {
                "commit": calling(Consumer, "commit", timeout_ms=1_000),
                "committed": calling(Consumer, "committed", PARTITION, timeout_ms=1_000),
                "position": calling(Consumer, "position", PARTITION, timeout_ms=1_000),
                "beginning_offsets": calling(Consumer, "beginning_offsets", [PARTITION], timeout_ms=1_000),
                "end_offsets": calling(Consumer, "end_offsets", [PARTITION], timeout_ms=1_000),
                "offsets_for_times": calling(Consumer, "offsets_for_times", {PARTITION: 0}, timeout_ms=1_000),
            },
        ),
    ),
    (
        "docs/use/clients.md",
        '`security_protocol="SASL_PLAINTEXT"`, and `sasl_mechanism` other than `SCRAM-SHA-256`, `SCRAM-SHA-512` and'
        " `OAUTHBEARER`",
    ): (
        Tried(
            WRONG_OPTION,
            {"SASL_PLAINTEXT": opening(Consumer, security_protocol="SASL_PLAINTEXT")}
            | {
                mechanism: opening(Consumer, security_protocol="SASL_SSL", sasl_mechanism=mechanism)
                for mechanism in ("PLAIN", "SCRAM-SHA-1", "GSSAPI")
            },
        ),
    ),
    ("docs/use/clients.md", "`api_version`, `connections_max_idle_ms`, `send_buffer_bytes`"): (NO_KAFKA_OPTIONS,),
    ("docs/use/clients.md", "`find_hanging_transactions` of `KafkaAdminClient`: no transaction hangs here"): (
        Tried(NO_METHOD, {"find_hanging_transactions": calling(Admin, "find_hanging_transactions")}),
    ),
    ("docs/use/spark.md", "`groupIdPrefix`, `kafka.group.id`"): (
        Tried({"OptionError"}, {"kafka.group.id": reading("kafka.group.id", "g")}),
        Tried({IGNORED}, {"groupIdPrefix": reading("groupIdPrefix", "g")}),
    ),
    ("docs/use/spark.md", "`kafka.*` settings of the client, security"): (
        Tried({"OptionError"}, {"security": reading("kafka.security.protocol", "SSL")}),
    ),
}

#: Statements that have a test elsewhere: its file and name.
ELSEWHERE = {
    ("docs/operate/security.md", "`none` and shared secrets (HMAC) cannot be configured"): (
        "tests/server/process/test_token_settings.py",
        "test_what_does_not_go_together_is_refused",
    ),
    ("docs/operate/security.md", "There is no channel binding"): (
        "tests/server/test_scram.py",
        "test_a_first_message_that_is_none_is_refused",
    ),
    ("docs/use/mirror.md", "**Settings** that quorumlog does not support are omitted"): (
        "tests/sdk/mirror/test_target_topics.py",
        "test_settings_that_mean_the_same_are_taken_and_others_left",
    ),
    ("docs/use/mirror.md", "**The source cluster's own topics**, such as `__consumer_offsets`, are not copied"): (
        "tests/sdk/mirror/test_source_records.py",
        "test_only_the_clusters_own_topics_are_omitted",
    ),
    ("docs/use/spark.md", "`CREATE TABLE … USING`"): (
        "tests/spark/test_read_options.py",
        "test_a_table_of_spark_s_catalog_brings_no_options_and_is_told_apart",
    ),
    ("docs/use/spark.md", "`CREATE TABLE` does not work"): (
        "tests/spark/test_read_options.py",
        "test_a_table_of_spark_s_catalog_brings_no_options_and_is_told_apart",
    ),
    ("docs/use/spark.md", "`Trigger.Continuous`, real-time mode"): (
        "tests/spark/test_stream_read.py",
        "test_only_micro_batches_are_read",
    ),
}

#: Words of statements about missing features, on the pages for users and operators.
MISSING_FEATURE = re.compile(
    r"not supported|quorumlog does not support|not implemented|no transactions|no tiered storage|\| missing:"
    r"|does not exist here|cannot be configured|not created automatically|are not copied|no host column",
    re.IGNORECASE,
)
#: Statements that have these words and are about something else.
OTHERS = {
    (
        "docs/use/mirror.md",
        "**Transactions**: aborted records are not copied, and those of an open transaction, with what follows them,"
        " once it has ended. Lags count them before.",
    )
}


def pages() -> list[str]:
    folders = (ROOT / "docs/use", ROOT / "docs/operate")
    return ["README.md", *sorted(str(path.relative_to(ROOT)) for each in folders for path in each.glob("*.md"))]


class Statement(NamedTuple):
    """Statement of a page about a missing feature.

    Arguments:
        is_whole: a quotation must be the whole text, not a part of it.
    """

    page: str
    text: str
    is_whole: bool


def statements() -> Iterator[Statement]:
    """Yields the statements of all pages, except the table of Kafka's port."""
    for page in pages():
        for unit in units(page):
            if (page, unit.section) == (KAFKA_PAGE, KAFKA_SECTION) or (page, unit.text) in OTHERS:
                continue
            if page == "README.md" and unit.text.startswith("**Not supported yet**: "):
                for piece in unit.text.partition(": ")[2].rstrip(".").split("; "):
                    yield Statement(page, piece, True)
            elif MISSING_FEATURE.search(unit.text) or unit.section == "What is missing here":
                is_row = len(unit.cells) > 1 and not unit.cells[0].endswith("Error`")
                yield Statement(page, unit.cells[0] if is_row else unit.text, is_row)


@pytest.mark.parametrize("said", statements(), ids=lambda said: slug(said.text))
def test_statement_has_attempt(said: Statement) -> None:
    quotations = [quotation for page, quotation in (*STATEMENTS, *ELSEWHERE) if page == said.page]
    assert any(each == said.text if said.is_whole else each in said.text for each in quotations), (
        f"{said.page} says {said.text!r}, which has no attempt: add one"
    )


@pytest.mark.parametrize(("page", "quotation"), STATEMENTS, ids=slug)
def test_feature_is_missing(rig: Rig, page: str, quotation: str) -> None:
    """The page still says so, and every attempt fails as it should."""
    assert_is_said(page, quotation)
    for wanted, attempts in STATEMENTS[page, quotation]:
        assert {name: attempt(rig) for name, attempt in attempts.items()} == dict.fromkeys(attempts, wanted)


@pytest.mark.parametrize(("page", "quotation"), ELSEWHERE, ids=slug)
def test_statement_is_tested_elsewhere(page: str, quotation: str) -> None:
    assert_is_said(page, quotation)
    file, test = ELSEWHERE[page, quotation]
    assert f"def {test}(" in (ROOT / file).read_text()


def assert_is_said(page: str, quotation: str) -> None:
    assert quotation in " ".join((ROOT / page).read_text().split()), f"{page} no longer says so: remove the attempt"
