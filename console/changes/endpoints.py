"""Endpoints for changes: each change is previewed, and executed as it was shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quorumlog.console.changes.requests import LARGEST_NUMBER, BadChangeError, answering, body_of, whole
from quorumlog.console.changes.reset_plan import MOST_PARTITIONS, ResetTo, ResetWish, plan
from quorumlog.sdk import QuorumlogError, RecordExplanation, TopicPartition
from quorumlog.sdk.aio import AsyncAdmin, AsyncConsumer, AsyncProducer

#: Maximum number of replicas of a partition; the cluster has a limit of its own.
MOST_REPLICAS = 100


class ChangeEndpoints:
    """Endpoints for changes from the page.

    Arguments:
        make_producer: returns a producer for one record.
        allowed: True if changes are allowed; plans are shown in any case.
    """

    def __init__(
        self,
        admin: AsyncAdmin,
        consumer: AsyncConsumer,
        make_producer: Callable[[], AsyncProducer],
        *,
        allowed: bool,
    ) -> None:
        self._admin = admin
        self._consumer = consumer
        self._make_producer = make_producer
        self._explainer: AsyncProducer | None = None
        self._allowed = allowed

    async def close(self) -> None:
        """Closes the producer that is kept between requests."""
        kept, self._explainer = self._explainer, None
        if kept is not None:
            await kept.close(timeout=0)

    def routes(self) -> list[Route]:
        """Returns the routes; those for changes only if they are allowed."""
        shown = [
            ("/changes/reset", self.plan_reset, ["GET"]),
            ("/changes/configs/{topic}", self.configs, ["GET"]),
            ("/changes/moves/{topic}/{partition:int}", self.check_move, ["GET"]),
        ]
        changes = [
            ("/changes/reset", self.reset, ["POST"]),
            ("/changes/configs/{topic}", self.set_config, ["POST"]),
            ("/changes/records/{topic}", self.send, ["POST"]),
            ("/changes/moves/{topic}/{partition:int}", self.move, ["POST"]),
        ]
        return [
            Route(path, answering(answer), methods=methods)
            for path, answer, methods in (shown + changes if self._allowed else shown)
        ]

    async def plan_reset(self, request: Request) -> Response:
        """Plans a reset of the offsets of ``group``: ``to`` and, if required, ``by``; ``topic`` limits it to one
        topic.
        """
        query = request.query_params
        try:
            to = ResetTo(query.get("to", ""))
        except ValueError:
            raise BadChangeError(f"to must be one of {', '.join(each.value for each in ResetTo)}") from None
        by = whole(query["by"], -LARGEST_NUMBER) if query.get("by") else None
        if by is None and to in (ResetTo.OFFSET, ResetTo.SHIFT, ResetTo.TIME):
            raise BadChangeError(f"to={to.value} needs a number")
        reset = ResetWish(to, by, query.get("topic") or None)
        return JSONResponse(await plan(self._admin, self._consumer, query.get("group", ""), reset))

    async def reset(self, request: Request) -> Response:
        """Sets a group's offsets to those of a plan: ``group`` and ``steps`` with topic, partition and target."""
        body = await body_of(request)
        group, steps = body.get("group"), body.get("steps")
        if not isinstance(group, str) or not isinstance(steps, list) or not 0 < len(steps) <= MOST_PARTITIONS:
            raise BadChangeError("expected a group and the steps of a plan")
        offsets = {}
        for each in steps:
            if not isinstance(each, dict) or not isinstance(each.get("topic"), str):
                raise BadChangeError("a step must have a topic, a partition and a target")
            tp = TopicPartition(each["topic"], whole(each.get("partition")))
            offsets[tp] = whole(each.get("target"))
        await self._admin.alter_group_offsets(group, offsets)
        return Response(status_code=204)

    async def configs(self, request: Request) -> Response:
        """Lists every setting of a topic, with its documentation."""
        topic = str(request.path_params["topic"])
        found = await self._admin.describe_configs([topic])
        rows = [
            {
                "name": each.name,
                "value": each.value,
                "default": each.default,
                "is_default": each.is_default,
                "documentation": each.documentation,
            }
            for _, each in sorted(found[topic].items())
        ]
        return JSONResponse(rows)

    async def set_config(self, request: Request) -> Response:
        """Sets ``name`` to ``value``, or resets it to its default if that is null."""
        body = await body_of(request)
        name, value = body.get("name"), body.get("value")
        if not isinstance(name, str) or not (value is None or isinstance(value, str)):
            raise BadChangeError("expected the name of a setting and its value, or null")
        await self._admin.alter_configs({str(request.path_params["topic"]): {name: value}})
        return Response(status_code=204)

    async def check_move(self, request: Request) -> Response:
        """Checks if a partition can be moved to ``replicas``, and returns the nodes that would be added and removed."""
        place, replicas = _place(request), _nodes(request.query_params.get("replicas", "").split(","))
        topics = await self._admin.describe_topics([place.topic])
        now = next((each for each in topics[0].partitions if each.partition == place.partition), None)
        if now is None:
            raise BadChangeError(f"topic {place.topic} has no partition {place.partition}")
        await self._admin.reassign_partitions({place: replicas}, validate_only=True)
        return JSONResponse(
            {
                "replicas": replicas,
                "adding": [node for node in replicas if node not in now.replicas],
                "removing": [node for node in now.replicas if node not in replicas],
            }
        )

    async def move(self, request: Request) -> Response:
        """Moves a partition to ``replicas``, the preferred leader first, or cancels its move if that is null."""
        body = await body_of(request)
        replicas = body.get("replicas")
        if not (replicas is None or isinstance(replicas, list)):
            raise BadChangeError("replicas must be node ids, or null")
        wanted = None if replicas is None else _nodes(replicas)
        await self._admin.reassign_partitions({_place(request): wanted})
        return Response(status_code=204)

    async def send(self, request: Request) -> Response:
        """Sends a record: ``key`` and ``value``, each a string or null; ``partition``, or null to choose it by the key.
        With ``explain`` the response contains the record's path.
        """
        body = await body_of(request)
        key, value, partition = body.get("key"), body.get("value"), body.get("partition")
        if not all(each is None or isinstance(each, str) for each in (key, value)):
            raise BadChangeError("key and value must each be a string or null")
        topic, number = str(request.path_params["topic"]), None if partition is None else whole(partition)
        key, value = None if key is None else key.encode(), None if value is None else value.encode()
        if body.get("explain") is True:
            explanation = await self._explain(topic, value, key, number)
            place, more = explanation.metadata, {"way": _way(explanation)}
        else:
            async with self._make_producer() as producer:
                place, more = await producer.send_and_wait(topic, value, key=key, partition=number), {}
        return JSONResponse({"partition": place.partition, "offset": str(place.offset), **more})

    async def _explain(
        self, topic: str, value: bytes | None, key: bytes | None, partition: int | None
    ) -> RecordExplanation:
        """Explains a record with a producer that is kept: the one-time setup of a new one would dominate the times."""
        if self._explainer is None:
            self._explainer = self._make_producer()
        try:
            return await self._explainer.explain(topic, value, key, partition=partition)
        except QuorumlogError:
            await self.close()
            raise


def _way(told: RecordExplanation) -> dict[str, Any]:
    return {
        "rule": told.rule,
        "untraced": told.untraced,
        "attempts": told.attempts,
        "answered_us": told.answered_us,
        "on_the_way_us": told.on_the_way_us,
        "stages": [asdict(stage) for stage in told.stages],
    }


def _place(request: Request) -> TopicPartition:
    return TopicPartition(str(request.path_params["topic"]), whole(request.path_params["partition"]))


def _nodes(ids: list[object] | list[str]) -> list[int]:
    """Parses node ids, given as numbers or text."""
    if not 0 < len(ids) <= MOST_REPLICAS:
        raise BadChangeError(f"expected 1 to {MOST_REPLICAS} node ids")
    return [whole(each.strip() if isinstance(each, str) else each) for each in ids]
