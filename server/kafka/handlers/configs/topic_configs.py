"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs of topics. Those of nodes are read-only."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from quorumlog.server.kafka.codec.config_requests import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from quorumlog.server.kafka.codec.config_responses import (
    AlterConfigsResponse,
    AlterConfigsResponseAlterConfigsResourceResponse,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsResponse,
    IncrementalAlterConfigsResponseAlterConfigsResourceResponse,
)
from quorumlog.server.kafka.handlers.configs.config_keys import (
    DEFAULT_CONFIG,
    TOPIC_CONFIG,
    TYPES,
    UNKNOWN_TYPE,
    RefusedConfigError,
    effective,
    is_without_effect,
    shown_value,
)
from quorumlog.server.kafka.handlers.configs.node_configs import describe_node
from quorumlog.server.kafka.handlers.error_codes import KafkaError, kafka_code
from quorumlog.server.kafka.handlers.handler import KafkaCall, Steps, ask
from quorumlog.v1 import admin_pb2

_TOPIC, _BROKER, _BROKER_LOGGER = 2, 4, 8
_TIMEOUT_MS = 30_000
#: A key and value that are valid for any topic.
_ANY_KEY, _ANY_VALUE = "retention.ms", "604800000"
_NO_ERROR = (KafkaError.NONE, None)
_Outcome = tuple[KafkaError, str | None]
_Resource = tuple[int, str]


class _Operation(IntEnum):
    SET = 0
    DELETE = 1


def describe_configs(call: KafkaCall[DescribeConfigsRequest]) -> Steps[DescribeConfigsResponse]:
    """Answers DescribeConfigs."""
    names = dict.fromkeys(each.resource_name for each in call.message.resources if each.resource_type == _TOPIC)
    reply = yield from ask(admin_pb2.DescribeConfigsRequest(names=names), admin_pb2.DescribeConfigsResponse)
    topics = {each.name: each for each in reply.results}
    results, told = [], set[_Resource]()
    for each in call.message.resources:
        place = each.resource_type, each.resource_name
        # A small request that repeats a name must not return its configuration many times.
        if place in told:
            results.append(_repeated(place))
        elif each.resource_type == _BROKER:
            results.append((yield from describe_node(call, each)))
        else:
            results.append(_described(call.message, each, topics))
        told.add(place)
    return DescribeConfigsResponse(results=results)


def alter_configs(call: KafkaCall[AlterConfigsRequest]) -> Steps[AlterConfigsResponse]:
    """Answers AlterConfigs: keys that a request does not name return to their defaults."""
    changes: dict[_Resource, admin_pb2.AlterTopicConfig] = {}
    outcomes: dict[_Resource, _Outcome] = {}
    for each in call.message.resources:
        place = each.resource_type, each.resource_name
        outcomes[place] = _refusal(place, place in outcomes, clears=not each.configs)
        if outcomes[place] != _NO_ERROR or place[0] != _TOPIC:
            continue
        try:
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
    outcomes: dict[_Resource, _Outcome] = {}
    for each in call.message.resources:
        place = each.resource_type, each.resource_name
        clears = all(one.config_operation == _Operation.DELETE for one in each.configs)
        outcomes[place] = _refusal(place, place in outcomes, clears=clears)
        if outcomes[place] != _NO_ERROR or place[0] != _TOPIC:
            continue
        try:
            changes[place] = _increment(each)
        except RefusedConfigError as problem:
            outcomes[place] = problem.code, str(problem)
            continue
        if call.cluster.topic_configs(each.resource_name) is None:
            outcomes[place] = KafkaError.UNKNOWN_TOPIC_OR_PARTITION, None
            del changes[place]
    yield from _alter(changes, outcomes, call.message.validate_only)
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


def _refusal(place: _Resource, is_repeated: bool, *, clears: bool = False) -> _Outcome:
    """Returns the error for a resource that cannot be altered or described.

    Arguments:
        clears: the change only removes values.
    """
    if is_repeated:
        return KafkaError.INVALID_REQUEST, "the request names the resource twice"
    if place[0] == _TOPIC:
        return _NO_ERROR
    if place[0] in (_BROKER, _BROKER_LOGGER):
        # Kafka's own tool clears limits of nodes after each move, whether it has set any or not.
        return (
            _NO_ERROR
            if clears
            else (
                KafkaError.INVALID_CONFIG,
                "settings of nodes cannot be changed here: change the configuration file of the node",
            )
        )
    return KafkaError.INVALID_REQUEST, f"resources of type {place[0]} have no configuration here"


def _increment(resource: IncrementalAlterConfigsRequestAlterConfigsResource) -> admin_pb2.AlterTopicConfig:
    change = admin_pb2.AlterTopicConfig(name=resource.resource_name)
    to_set = [(each.name, each.value) for each in resource.configs if each.config_operation == _Operation.SET]
    if any(value is None for _, value in to_set):
        raise RefusedConfigError("a key has no value: set one, or use DELETE", KafkaError.INVALID_REQUEST)
    change.set.update(effective(to_set))
    for each in resource.configs:
        if each.config_operation == _Operation.DELETE:
            if not is_without_effect(each.name):
                change.clear.append(each.name)
        elif each.config_operation != _Operation.SET:
            raise RefusedConfigError(f"{each.name} is not a list: use SET or DELETE", KafkaError.INVALID_REQUEST)
    return change


def _repeated(place: _Resource) -> DescribeConfigsResult:
    return DescribeConfigsResult(*_refusal(place, is_repeated=True), *place, configs=())


def _described(
    request: DescribeConfigsRequest, resource: DescribeConfigsResource, topics: Mapping[str, admin_pb2.TopicConfigs]
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(KafkaError.NONE, None, resource.resource_type, resource.resource_name, configs=())
    if resource.resource_type == _BROKER_LOGGER:
        return result
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
