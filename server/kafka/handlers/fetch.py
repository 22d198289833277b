"""Fetch: requests without a session, and incremental ones (KIP-227)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from quorumlog.server.kafka.codec.fetch_requests import FetchPartition, FetchRequest
from quorumlog.server.kafka.codec.fetch_responses import FetchableTopicResponse, FetchResponse, PartitionData
from quorumlog.server.kafka.handlers.error_codes import KafkaError
from quorumlog.server.kafka.handlers.fetch_session import (
    ConnectionFetches,
    KafkaFetchSession,
    KeptPartition,
    WantedFetch,
)
from quorumlog.server.kafka.handlers.fetched_partition import (
    BY_ID,
    NOTHING_NOW,
    answer_of,
    fill,
    isolation_level,
    nodes_named,
    put_records,
    throttle_ms,
)
from quorumlog.server.kafka.handlers.handler import FetchReply, KafkaCall, Steps, ask_fetch
from quorumlog.server.kafka.handlers.topic_names import find_topics
from quorumlog.v1 import data_plane_pb2
from quorumlog.wire.entry import parse_header

#: Session epochs of requests without a session, and of those that start one.
_SESSIONLESS, _BEGINS = -1, 0
_CONSUMER = -1
_FIRST_WITH_SESSIONS = 7


def fetch(call: KafkaCall[FetchRequest]) -> Steps[FetchResponse]:
    """Answers Fetch."""
    request, fetches = call.message, call.fetches
    replica = request.replica_id if request.replica_state is None else request.replica_state.replica_id
    if replica != _CONSUMER:
        return _refused(call, KafkaError.INVALID_REQUEST)
    if request.session_epoch in (_SESSIONLESS, _BEGINS):
        if fetches is not None and fetches.find(request.session_id) is not None:
            fetches.end()
        if fetches is not None and request.session_epoch == _BEGINS and call.version >= _FIRST_WITH_SESSIONS:
            response = yield from _begin_session(call, fetches)
            if response is not None:
                return response
        return (yield from _fetch_by_itself(call))
    session = None if fetches is None else fetches.find(request.session_id)
    if fetches is None or session is None:
        return _refused(call, KafkaError.FETCH_SESSION_ID_NOT_FOUND)
    if session.epoch != request.session_epoch:
        return _refused(call, KafkaError.INVALID_FETCH_SESSION_EPOCH)
    if session.by_id != (call.version >= BY_ID):
        return _refused(call, KafkaError.FETCH_SESSION_TOPIC_ID_ERROR)
    return (yield from _go_on(call, fetches, session))


def _refused(call: KafkaCall[FetchRequest], code: KafkaError) -> FetchResponse:
    """Returns the response to a request that fails as a whole; before version 7, each partition has the error."""
    if call.version >= _FIRST_WITH_SESSIONS:
        return FetchResponse(error_code=code)
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic.topic, topic.topic_id, [answer_of(each.partition, code) for each in topic.partitions]
            )
            for topic in call.message.topics
        ]
    )


def _question(call: KafkaCall[FetchRequest]) -> data_plane_pb2.FetchRequest:
    request = call.message
    return data_plane_pb2.FetchRequest(
        # A client that requires no minimum of bytes must not wait; the node has no such rule.
        max_wait_ms=max(0, request.max_wait_ms) if request.min_bytes > 0 else 0,
        min_bytes=max(0, request.min_bytes),
        max_bytes=max(1, request.max_bytes),
        takes_kafka_batches=True,
        client_rack=request.rack_id,
        isolation_level=isolation_level(request.isolation_level),
        takes_control_batches=True,
    )


def _find(call: KafkaCall[FetchRequest], topics: Iterable[str | bytes]) -> Steps[dict[str | bytes, bytes | KafkaError]]:
    """Returns topic ids by the names or ids that the request has."""
    resolved: dict[str | bytes, bytes | KafkaError] = {}
    names = []
    for topic in topics:
        if isinstance(topic, str):
            names.append(topic)
        else:
            resolved[topic] = topic
    if names:
        resolved.update((yield from find_topics(call.cluster, names)))
    return resolved


def _refusal(number: int, wish: WantedFetch, topic: bytes | KafkaError) -> KafkaError | None:
    """Returns the error of a partition that cannot be fetched, or None."""
    if isinstance(topic, KafkaError):
        return topic
    if number < 0:
        return KafkaError.UNKNOWN_TOPIC_OR_PARTITION
    return KafkaError.OFFSET_OUT_OF_RANGE if wish.fetch_offset < 0 else None


def _add(question: data_plane_pb2.FetchRequest, topic_id: bytes, number: int, wish: WantedFetch) -> None:
    question.partitions.add(
        topic_id=topic_id,
        partition=number,
        fetch_offset=wish.fetch_offset,
        leader_epoch=wish.leader_epoch,
        max_bytes=max(1, wish.max_bytes),
    )


def _wish(wanted: FetchPartition) -> WantedFetch:
    return WantedFetch(wanted.fetch_offset, wanted.current_leader_epoch, wanted.partition_max_bytes)


# -- requests without a session --------------------------------------------------------------------------------


def _fetch_by_itself(call: KafkaCall[FetchRequest]) -> Steps[FetchResponse]:
    request, by_id = call.message, call.version >= BY_ID
    topics = yield from _find(call, (topic.topic_id if by_id else topic.topic for topic in request.topics))
    question = _question(call)
    answers: dict[tuple[bytes, int], PartitionData] = {}
    responses = []
    for topic in request.topics:
        found = topics[topic.topic_id if by_id else topic.topic]
        partitions = []
        for wanted in topic.partitions:
            answer = answer_of(wanted.partition)
            partitions.append(answer)
            parameters = _wish(wanted)
            refusal = _refusal(wanted.partition, parameters, found)
            if refusal is not None:
                partitions[-1] = answer_of(wanted.partition, refusal)
            elif isinstance(found, KafkaError) or (found, wanted.partition) in answers:
                answer.error_code = KafkaError.INVALID_REQUEST
            else:
                answers[found, wanted.partition] = answer
                _add(question, found, wanted.partition, parameters)
        responses.append(FetchableTopicResponse(topic.topic, topic.topic_id, partitions))
    response = FetchResponse(responses=responses)
    if call.fetches is not None and call.fetches.ended:
        question.ends_session = True
        call.fetches.ended = False
    if not answers and not question.ends_session:
        return response
    if len(answers) < sum(len(topic.partitions) for topic in request.topics):
        question.max_wait_ms = 0  # There is already something to report.
    reply = yield from ask_fetch(question)
    served = []
    for result, entries in zip(reply.told.results, reply.entries, strict=True):
        answer = answers[result.topic_id, result.partition]
        fill(call, answer, result)
        served.append((answer, entries))
    is_whole = yield from put_records(call, served)
    response.throttle_time_ms = throttle_ms(reply.told, is_busy=not is_whole)
    response.node_endpoints = nodes_named(call, reply.told)
    return response


# -- sessions --------------------------------------------------------------------------------------------------


def _begin_session(call: KafkaCall[FetchRequest], fetches: ConnectionFetches) -> Steps[FetchResponse | None]:
    """Starts a session and answers for all of its partitions; None if the limit for sessions is reached."""
    request, by_id = call.message, call.version >= BY_ID
    session = fetches.begin(
        (
            (topic.topic_id if by_id else topic.topic, wanted.partition, _wish(wanted))
            for topic in request.topics
            for wanted in topic.partitions
        ),
        by_id=by_id,
    )
    if session is None:
        return None
    question = _question(call)
    question.tells_all = True  # Clients expect every partition in the first response.
    refused = yield from _name_due(call, session, question)
    reply = yield from _ask_in_session(session, question)
    if reply.told.HasField("error"):
        fetches.end()
        return None
    results, is_busy = yield from _take_results(call, session, reply)
    kept = session.partitions.values()
    every = {each: refused.get(each) or results.get(each) or answer_of(each.number) for each in kept}
    return _answered(call, session, every, reply.told, is_busy=is_busy)


def _go_on(
    call: KafkaCall[FetchRequest], fetches: ConnectionFetches, session: KafkaFetchSession
) -> Steps[FetchResponse]:
    """Answers the next request of a session with what has changed."""
    question = _question(call)
    gone = _take_changes(call.message, session, fetches.most_partitions)
    if gone is None:
        fetches.end()
        return _refused(call, KafkaError.FETCH_SESSION_ID_NOT_FOUND)
    for topic_id, number in gone:
        question.forgotten.add(topic_id=topic_id, partition=number)
    if not session.partitions:
        # The session is empty, which ends it, as in Kafka.
        fetches.end()
        question = data_plane_pb2.FetchRequest(ends_session=True)
        fetches.ended = False
        yield from ask_fetch(question)
        return FetchResponse()
    fetches.resized()
    session.next_epoch()
    refused = yield from _name_due(call, session, question)
    reply = yield from _ask_in_session(session, question)
    if reply.told.HasField("error"):
        # The node's session was evicted, or accepts no more partitions: the consumer starts another one.
        fetches.end()
        return _refused(call, KafkaError.FETCH_SESSION_ID_NOT_FOUND)
    results, is_busy = yield from _take_results(call, session, reply)
    news = {each: answer for each, answer in results.items() if each not in refused and answer is not None}
    return _answered(call, session, refused | news, reply.told, is_busy=is_busy)


def _take_changes(request: FetchRequest, session: KafkaFetchSession, most: int) -> list[tuple[bytes, int]] | None:
    """Applies a consumer's changes to its session.

    Arguments:
        most: maximum number of partitions of the session.

    Returns:
        The partitions to remove from the node's session; None if the additions exceed the limit.
    """
    forgotten = [
        (topic.topic_id if session.by_id else topic.topic, number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]
    # Removed partitions free capacity although they are removed last: a partition may be on both lists.
    most += len(session.partitions.keys() & forgotten)
    for topic in request.topics:
        name = topic.topic_id if session.by_id else topic.topic
        for wanted in topic.partitions:
            if not session.want(name, wanted.partition, _wish(wanted), most):
                return None
    places = (session.forget(name, number) for name, number in forgotten)
    return list(dict.fromkeys(place for place in places if place is not None))


def _name_due(
    call: KafkaCall[FetchRequest], session: KafkaFetchSession, question: data_plane_pb2.FetchRequest
) -> Steps[dict[KeptPartition, PartitionData]]:
    """Adds the partitions that the node's session has differently to the request; returns those refused here."""
    due = list(session.due)
    session.due.clear()
    topics = yield from _find(call, dict.fromkeys(each.topic for each in due))
    refused: dict[KeptPartition, PartitionData] = {}
    for each in due:
        found = topics[each.topic]
        refusal = _refusal(each.number, each.wish, found)
        if refusal is None and found == each.topic_id and each.known == each.wish:
            continue
        # The name may belong to another topic by now.
        place = None if refusal is None and found == each.topic_id else session.lose(each)
        if place is not None:
            question.forgotten.add(topic_id=place[0], partition=place[1])
        if refusal is None and not isinstance(found, KafkaError):
            session.put_at_node(each, found)
            _add(question, found, each.number, each.wish)
        else:
            refused[each] = answer_of(each.number, refusal)
            session.due[each] = None  # The outcome may differ next time.
    if refused:
        question.max_wait_ms = 0
    return refused


def _ask_in_session(session: KafkaFetchSession, question: data_plane_pb2.FetchRequest) -> Steps[FetchReply]:
    session.node_epoch += 1
    question.session_epoch = session.node_epoch
    return (yield from ask_fetch(question))


def _take_results(
    call: KafkaCall[FetchRequest], session: KafkaFetchSession, reply: FetchReply
) -> Steps[tuple[dict[KeptPartition, PartitionData | None], bool]]:
    """Processes the node's results. Returns the answers (None: nothing new), and whether it was too busy for some."""
    results: dict[KeptPartition, PartitionData | None] = {}
    served: list[tuple[PartitionData, Sequence[bytes]]] = []
    for result, entries in zip(reply.told.results, reply.entries, strict=True):
        kept = session.at_node[result.topic_id, result.partition]
        if result.HasField("error") or result.HasField("preferred_replica"):
            session.lose(kept)
            session.due[kept] = None
        elif entries:
            session.moved(kept, parse_header(entries[-1]).last_offset + 1)
        if result.error.code in NOTHING_NOW:
            results[kept] = None
            continue
        answer = results[kept] = answer_of(kept.number)
        fill(call, answer, result)
        served.append((answer, entries))
    # A consumer that receives no records stays at its offset; the node's session is reset to that.
    return results, not (yield from put_records(call, served))


def _answered(
    call: KafkaCall[FetchRequest],
    session: KafkaFetchSession,
    answers: dict[KeptPartition, PartitionData],
    reply: data_plane_pb2.FetchResponse,
    *,
    is_busy: bool,
) -> FetchResponse:
    return FetchResponse(
        throttle_ms(reply, is_busy=is_busy),
        session_id=session.number,
        responses=list(_by_topic(answers)),
        node_endpoints=nodes_named(call, reply),
    )


def _by_topic(answers: dict[KeptPartition, PartitionData]) -> Iterator[FetchableTopicResponse]:
    topics: dict[str | bytes, list[PartitionData]] = {}
    for kept, answer in answers.items():
        topics.setdefault(kept.topic, []).append(answer)
    for topic, partitions in topics.items():
        if isinstance(topic, str):
            yield FetchableTopicResponse(topic, partitions=partitions)
        else:
            yield FetchableTopicResponse(topic_id=topic, partitions=partitions)
