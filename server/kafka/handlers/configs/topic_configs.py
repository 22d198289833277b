"""DescribeConfigs, ListConfigResources, AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from quorumlog.server.kafka.codec.config_requests import (
    AlterConfigsRequest,
    AlterConfigsRequestAlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    ListConfigResourcesRequest,
)
from quorumlog.server.kafka.codec.config_responses import (
    AlterConfigsResponse,
    AlterConfigsResponseAlterConfigsResourceResponse,
    ConfigResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseAlterConfigsResourceResponse,
    ListConfigResourcesResponse,
)
from quorumlog.server.kafka.handlers.configs.config_keys import (
    DEFAULT_CONFIG,
    TOPIC_CONFIG,
    TYPES,
    UNKNOWN_TYPE,
    RefusedConfigError,
    effective,
    is_list,
    is_without_effect,
    shown_value,
)
from quorumlog.server.kafka.handlers.configs.node_configs import (
    BROKER,
    BROKER_LOGGER,
    alter_nodes,
    describe_node,
    increments_of_node,
    replacement_of_node,
)
from quorumlog.server.kafka.handlers.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps, ask
from quorumlog.server.metadata.topic_config import default_text
from quorumlog.v1 import admin_pb2, data_plane_pb2, node_settings_pb2
from quorumlog.v1.errors_pb2 import Error

_TOPIC, _CLIENT_METRICS, _GROUP = 2, 16, 32
_NODES = (BROKER, BROKER_LOGGER)
#: Clients and groups have no configuration of their own here: none of them is ever listed.
_TYPES = (_TOPIC, BROKER, BROKER_LOGGER, _CLIENT_METRICS, _GROUP)
#: The first version that names types; the one before asks for clients only.
_NAMES_TYPES = 1
_TIMEOUT_MS = 30_000
#: A key and value that are valid for any topic.
_ANY_KEY, _ANY_VALUE = "retention.ms", "604800000"
_NO_ERROR = (KafkaError.NONE, None)
_Outcome = tuple[KafkaError, str | None]
_Resource = tuple[int, str]


class _Operation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def describe_configs(call: KafkaCall[DescribeConfigsRequest]) -> Steps[DescribeConfigsResponse]:
    """Answers DescribeConfigs."""
    names = dict.fromkeys(each.resource_name for each in call.message.resources if each.resource_type == _TOPIC)
    reply = yield from ask(admin_pb2.DescribeConfigsRequest(names=names), admin_pb2.DescribeConfigsResponse)
    topics = {each.name: each for each in reply.results}
    results, described = [], set[_Resource]()
    for each in call.message.resources:
        place = each.resource_type, each.resource_name
        # A small request that repeats a name must not return its configuration many times.
        if place in described:
            results.append(_repeated(place))
        elif each.resource_type in _NODES:
            results.append((yield from describe_node(call, each)))
        else:
            results.append(_described(call.message, each, topics))
        described.add(place)
    return DescribeConfigsResponse(results=results)


def list_config_resources(call: KafkaCall[ListConfigResourcesRequest]) -> Steps[ListConfigResourcesResponse]:
    """Answers ListConfigResources: the topics that the client may describe, and all nodes."""
    wanted: Iterable[int] = dict.fromkeys(call.message.resource_types) or _TYPES
    if call.version < _NAMES_TYPES:
        wanted = (_CLIENT_METRICS,)
    if not set(wanted) <= set(_TYPES):
        return ListConfigResourcesResponse(error_code=KafkaError.UNSUPPORTED_VERSION)
    # As the settings of nodes, the list is only for clients that may describe the cluster.
    permitted = yield from ask(admin_pb2.DescribeNodeRequest(), admin_pb2.DescribeNodeResponse)
    if permitted.HasField("error"):
        return ListConfigResourcesResponse(error_code=kafka_code(permitted.error))
    cluster = yield from ask(data_plane_pb2.MetadataRequest(), data_plane_pb2.MetadataResponse)
    nodes = [str(each) for each in sorted(each.node_id for each in cluster.brokers)]
    names = {_TOPIC: sorted(call.cluster.topic_names()), BROKER: nodes, BROKER_LOGGER: nodes}
    return ListConfigResourcesResponse(
        config_resources=[ConfigResource(name, kind) for kind in wanted for name in names.get(kind, ())]
    )


def alter_configs(call: KafkaCall[AlterConfigsRequest]) -> Steps[AlterConfigsResponse]:
    """Answers AlterConfigs: keys that a request does not name return to their defaults."""
    changes: dict[_Resource, admin_pb2.AlterTopicConfig] = {}
    nodes: dict[_Resource, node_settings_pb2.NodeSettingsAlteration] = {}
    outcomes: dict[_Resource, _Outcome] = {}
    records = yield from _node_records(call.message.resources)
    for each in call.message.resources:
        place = each.resource_type, each.resource_name
        outcomes[place] = _refusal(place, place in outcomes)
        if outcomes[place] != _NO_ERROR:
            continue
        if place[0] in _NODES and isinstance(records, Error):
            outcomes[place] = kafka_code(records), records.message
            continue
        try:
            if place[0] in _NODES and not isinstance(records, Error):
                nodes[place] = replacement_of_node(*place, ((one.name, one.value) for one in each.configs), records)
                continue
            values = effective((one.name, one.value) for one in each.configs)
        except RefusedConfigError as problem:
            outcomes[place] = problem.code, str(problem)
            continue
        set_now = call.cluster.topic_configs(each.resource_name)
        if set_now is None:
            outcomes[place] = KafkaError.UNKNOWN_TOPIC_OR_PARTITION, None
            continue
        change = admin_pb2.AlterTopicConfig(name=each.resource_name)
        change.set.update(values)
        change.clear.extend(name for name in set_now if name not in values)
        changes[place] = change
    yield from _alter(changes, outcomes, call.message.validate_only)
    outcomes |= yield from alter_nodes(nodes, _TIMEOUT_MS, validate_only=call.message.validate_only)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResponseAlterConfigsResourceResponse(*outcomes[place], *place)
            for place in ((each.resource_type, each.resource_name) for each in call.message.resources)
        ]
    )


def alter_configs_incrementally(
    call: KafkaCall[IncrementalAlterConfigsRequest],
) -> Steps[IncrementalAlterConfigsResponse]:
    """Answers IncrementalAlterConfigs."""
    changes: dict[_Resource, admin_pb2.AlterTopicConfig] = {}
    nodes: dict[_Resource, node_settings_pb2.NodeSettingsAlteration] = {}
    outcomes: dict[_Resource, _Outcome] = {}
    for each in call.message.resources:
        place = each.resource_type, each.resource_name
        outcomes[place] = _refusal(place, place in outcomes)
        if outcomes[place] != _NO_ERROR:
            continue
        set_now = call.cluster.topic_configs(each.resource_name)
        try:
            if place[0] in _NODES:
                wanted = ((one.name, one.config_operation, one.value) for one in each.configs)
                nodes[place] = increments_of_node(*place, wanted)
                continue
            change = _increment(each, set_now or {})
        except RefusedConfigError as problem:
            outcomes[place] = problem.code, str(problem)
            continue
        if set_now is None:
            outcomes[place] = KafkaError.UNKNOWN_TOPIC_OR_PARTITION, None
        else:
            changes[place] = change
    yield from _alter(changes, outcomes, call.message.validate_only)
    outcomes |= yield from alter_nodes(nodes, _TIMEOUT_MS, validate_only=call.message.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            IncrementalAlterConfigsResponseAlterConfigsResourceResponse(*outcomes[place], *place)
            for place in ((each.resource_type, each.resource_name) for each in call.message.resources)
        ]
    )


def _alter(
    changes: Mapping[_Resource, admin_pb2.AlterTopicConfig], outcomes: dict[_Resource, _Outcome], validate_only: bool
) -> Steps[None]:
    real = [change for change in changes.values() if change.set or change.clear]
    # A change that consists of keys without effect changes nothing. Authorization is checked nevertheless: by a change
    # that is validated only, and would have no effect either.
    empty = [
        admin_pb2.AlterTopicConfig(name=change.name, set={_ANY_KEY: _ANY_VALUE})
        for change in changes.values()
        if not (change.set or change.clear)
    ]
    for topics, only_checks in ((real, validate_only), (empty, True)):
        if not topics:
            continue
        question = admin_pb2.AlterConfigsRequest(topics=topics, timeout_ms=_TIMEOUT_MS, validate_only=only_checks)
        reply = yield from ask(question, admin_pb2.AlterConfigsResponse)
        for each in reply.results:
            if each.HasField("error"):
                outcomes[_TOPIC, each.name] = kafka_code(each.error), each.error.message


def _node_records(
    resources: Iterable[AlterConfigsRequestAlterConfigsResource],
) -> Steps[Sequence[node_settings_pb2.NodeSettingsRecord] | Error]:
    """Returns the records of nodes, if one is replaced; the error if the client may not see them."""
    if not any(each.resource_type == BROKER for each in resources):
        return ()
    question = node_settings_pb2.DescribeNodeSettingsRequest(timeout_ms=_TIMEOUT_MS, linearizable=True)
    reply = yield from ask(question, node_settings_pb2.DescribeNodeSettingsResponse)
    return reply.error if reply.HasField("error") else reply.records


def _refusal(place: _Resource, is_repeated: bool) -> _Outcome:
    """Returns the error for a resource that cannot be altered or described."""
    if is_repeated:
        return KafkaError.INVALID_REQUEST, "the request names the resource twice"
    if place[0] == _TOPIC or place[0] in _NODES:
        return _NO_ERROR
    return KafkaError.INVALID_REQUEST, f"resources of type {place[0]} have no configuration here"


def _increment(
    resource: IncrementalAlterConfigsRequestAlterConfigsResource, set_now: Mapping[str, str]
) -> admin_pb2.AlterTopicConfig:
    """Returns the change of a topic, given the keys that are set on it now."""
    change = admin_pb2.AlterTopicConfig(name=resource.resource_name)
    to_set: list[tuple[str, str | None]] = []
    for each in resource.configs:
        if each.config_operation == _Operation.DELETE:
            if not is_without_effect(each.name):
                change.clear.append(each.name)
            continue
        if each.value is None:
            raise RefusedConfigError("a key has no value: set one, or use DELETE", KafkaError.INVALID_REQUEST)
        if each.config_operation == _Operation.SET:
            to_set.append((each.name, each.value))
        elif not is_list(each.name):
            raise RefusedConfigError(f"{each.name} is not a list: use SET or DELETE", KafkaError.INVALID_REQUEST)
        elif each.config_operation in (_Operation.APPEND, _Operation.SUBTRACT):
            appends = each.config_operation == _Operation.APPEND
            to_set.append((each.name, _changed_list(each.name, set_now, each.value, appends=appends)))
        else:
            raise RefusedConfigError(f"operation {each.config_operation} is unknown", KafkaError.INVALID_REQUEST)
    change.set.update(effective(to_set))
    return change


def _changed_list(name: str, set_now: Mapping[str, str], value: str, *, appends: bool) -> str:
    """Returns the value of a list after words were added to it, or removed from it.

    Raises:
        RefusedConfigError: nothing would be left.
    """
    words = [word.strip() for word in (set_now.get(name) or default_text(name)).split(",")]
    changed = [word.strip() for word in value.split(",")]
    if appends:
        return ",".join(dict.fromkeys(words + changed))
    left = ",".join(word for word in words if word not in changed)
    if not left:
        raise RefusedConfigError(f"{name} would be empty: leave one of {', '.join(words)}")
    return left


def _repeated(place: _Resource) -> DescribeConfigsResult:
    return DescribeConfigsResult(*_refusal(place, is_repeated=True), *place, configs=())


def _described(
    request: DescribeConfigsRequest, resource: DescribeConfigsResource, topics: Mapping[str, admin_pb2.TopicConfigs]
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(KafkaError.NONE, None, resource.resource_type, resource.resource_name, configs=())
    if resource.resource_type != _TOPIC:
        result.error_code, result.error_message = _refusal((resource.resource_type, ""), is_repeated=False)
        return result
    topic = topics[resource.resource_name]
    if topic.HasField("error"):
        result.error_code, result.error_message = kafka_code(topic.error), topic.error.message
        return result
    keys = resource.configuration_keys
    result.configs = [_entry(request, each) for each in topic.entries if keys is None or not keys or each.name in keys]
    return result


def _entry(request: DescribeConfigsRequest, entry: admin_pb2.ConfigEntry) -> DescribeConfigsResourceResult:
    value, source = shown_value(entry), DEFAULT_CONFIG if entry.is_default else TOPIC_CONFIG
    described = DescribeConfigsResourceResult(
        entry.name,
        value,
        config_source=source,
        config_type=TYPES.get(entry.name, UNKNOWN_TYPE),
        documentation=entry.documentation if request.include_documentation else None,
    )
    if request.include_synonyms:
        synonyms = [DescribeConfigsSynonym(entry.name, shown_value(entry, default=True), DEFAULT_CONFIG)]
        if not entry.is_default:
            synonyms.insert(0, DescribeConfigsSynonym(entry.name, value, TOPIC_CONFIG))
        described.synonyms = synonyms
    return described
