"""The driver's requests to a cluster: topics, and the first, end and timestamp offsets of their partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import grpc

from quorumlog.sdk.cluster.offset_search import EARLIEST, LATEST, OffsetSearch, RequestedPartition
from quorumlog.sdk.cluster.request_parts import in_parts
from quorumlog.sdk.errors import LeaderNotAvailableError, QuorumlogError, error_from_proto
from quorumlog.sdk.failed_calls import error_from_rpc
from quorumlog.sdk.isolation import IsolationLevel
from quorumlog.sdk.spark.nodes import Patience, lagging_is_retriable, nodes_at
from quorumlog.sdk.spark.planning import Bounds, Partition, TopicShape
from quorumlog.sdk.types import TopicPartition
from quorumlog.v1 import data_plane_pb2 as pb

_TIMEOUT_S = 10.0
#: Partitions end at their last stable offsets.
_COMMITTED: IsolationLevel = "read_committed"


class ClusterCatalog:
    """``planning.Catalog`` over a live cluster.

    Arguments:
        newest: request topics from the controller, instead of from any node's possibly older metadata.
    """

    def __init__(self, bootstrap_servers: str, *, newest: bool) -> None:
        self._nodes = nodes_at(bootstrap_servers)
        self._newest = newest

    def topic_names(self) -> Sequence[str]:
        """Returns all topics of the cluster except internal ones."""
        return self._nodes.topic_names(newest=self._newest)

    def describe(self, topics: Sequence[str]) -> Mapping[str, TopicShape]:
        """Returns the existing topics of these names."""
        views = self._nodes.topics(topics, newest=self._newest)
        return {
            name: TopicShape(view.topic_id, len(view.partitions), view.max_message_bytes)
            for name, view in views.items()
        }

    def bounds(self, shapes: Mapping[str, TopicShape], partitions: Sequence[Partition]) -> Mapping[Partition, Bounds]:
        """Returns log start and end of each partition, from its leader, as new as the call.

        Raises:
            QuorumlogError: a partition stayed without a leader, or failed permanently.
        """
        wanted = [TopicPartition(*partition) for partition in partitions]
        first = OffsetSearch(dict.fromkeys(wanted, EARLIEST), _COMMITTED)
        last = OffsetSearch(dict.fromkeys(wanted, LATEST), _COMMITTED)
        self._search(shapes, (first, last))
        return {tp: Bounds(first.found[tp].offset, last.found[tp].offset) for tp in wanted}

    def offsets_at(
        self, shapes: Mapping[str, TopicShape], times_ms: Mapping[Partition, int]
    ) -> Mapping[Partition, int | None]:
        """Returns the first offset at or after each partition's timestamp; otherwise None.

        Raises:
            QuorumlogError: a partition stayed without a leader, or failed permanently.
        """
        wanted = {TopicPartition(*partition): time_ms for partition, time_ms in times_ms.items()}
        search = OffsetSearch(wanted, _COMMITTED)
        self._search(shapes, (search,))
        return {tp: None if place.offset < 0 else place.offset for tp, place in search.found.items()}

    def _search(self, shapes: Mapping[str, TopicShape], searches: Sequence[OffsetSearch]) -> None:
        """Sends requests to leaders until every search is complete."""
        patience = Patience()
        refresh = False
        while any(search.missing for search in searches):
            steps = sum(search.steps for search in searches)
            failure = self._ask_leaders(shapes, searches, refresh)
            if sum(search.steps for search in searches) > steps:
                patience.progress()
            elif failure is None:
                failure = next(search for search in searches if search.missing).stalled()
            if failure is not None:
                patience.pause(failure)
            refresh = failure is not None

    def _ask_leaders(
        self, shapes: Mapping[str, TopicShape], searches: Sequence[OffsetSearch], refresh: bool
    ) -> QuorumlogError | None:
        """Sends requests to all leaders at once, each for all its partitions; returns the last error, if any."""
        by_leader: dict[str, dict[TopicPartition, RequestedPartition]] = {}
        failure: QuorumlogError | None = None
        wanted = sorted(set().union(*(search.missing for search in searches)))
        if refresh:
            self._nodes.look_again({tp.topic for tp in wanted})
        for tp in wanted:
            topic_id = shapes[tp.topic].topic_id
            try:
                view, address = self._nodes.leader(tp.topic, topic_id, tp.partition, refresh=False)
            except LeaderNotAvailableError as error:
                failure = error
                continue
            by_leader.setdefault(address, {})[tp] = RequestedPartition(topic_id, view.leader_epoch)
        calls = [
            (address, part, call)
            for address, places in by_leader.items()
            for part, call in self._list_offsets(address, places, searches)
        ]
        for address, part, call in calls:
            try:
                results = call.result().results
            except grpc.RpcError as error:
                failure = error_from_rpc(error, address)
                continue
            for (search, tp), result in zip(part, results, strict=True):
                if result.HasField("error"):
                    failure = lagging_is_retriable(error_from_proto(result.error))
                else:
                    search.take_answer(tp, result)
        return failure

    def _list_offsets(
        self, address: str, places: Mapping[TopicPartition, RequestedPartition], searches: Sequence[OffsetSearch]
    ) -> Iterator[tuple[list[tuple[OffsetSearch, TopicPartition]], grpc.CallFuture[pb.ListOffsetsResponse]]]:
        """Yields as few requests as possible for all searches; with each its questions, in order, and the call."""
        questions = [(search, tp) for search in searches for tp in places if tp in search.missing]
        for part in in_parts(questions):
            request = pb.ListOffsetsRequest()
            for search in searches:
                led = [(tp, places[tp]) for asking, tp in part if asking is search]
                request.MergeFrom(search.questions(led, int(_TIMEOUT_S * 1000)))
            yield part, self._nodes.stub(address).ListOffsets.future(request, timeout=_TIMEOUT_S)
