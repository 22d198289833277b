"""Replays a recorded run against a new cluster, and finds the fewest of its requests that reproduce a failure.

Ids of topics are replaced by those of the new cluster. Everything else is sent as recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from quorumlog.chaos.hostile.caller import HostileCaller
from quorumlog.chaos.hostile.fixture import StagedCluster, staged_cluster
from quorumlog.chaos.hostile.fuzzer import RECORD_NAME, Say
from quorumlog.chaos.hostile.known_ids import Vocabulary
from quorumlog.chaos.hostile.record import Action, SentLog, SentRequest, caller_of, read_record, write_record
from quorumlog.chaos.hostile.services import BY_PATH
from quorumlog.chaos.hostile.verdict import Watch, complaints
from quorumlog.chaos.hostile.wire import Wire, WireStream
from quorumlog.local import LocalCluster
from quorumlog.sdk import Admin

#: Time limit of a unary call, and time for which the nodes are watched after the last request (s).
_CALL_S, _AFTER_S = 0.5, 2.0
#: Maximum number of concurrent unary calls.
_AT_ONCE = 32


def replay(record: Path, *, reduce: bool = False, say: Say = print) -> list[str]:
    """Sends the requests of a record in order; returns the findings.

    Arguments:
        reduce: look for the fewest requests that crash a node, and write them beside the record.

    Raises:
        ValueError: the file is not a record.
    """
    caller, (topics, sent) = caller_of(record), read_record(record)
    say(f"replaying {len(sent)} requests")
    findings = _played(caller, topics, sent)
    for finding in findings:
        say(f"FOUND: {finding}")
    if reduce and findings:
        fewest = fewest_that(sent, lambda some: bool(_played(caller, topics, some)), say)
        write_record(record.with_name(f"reduced-{RECORD_NAME}"), topics, fewest, caller)
        say(f"{len(fewest)} requests reproduce it: {record.with_name(f'reduced-{RECORD_NAME}')}")
        for one in fewest:
            say(f"  node {one.node} {one.path} {one.action.value} {len(one.data)} bytes")
    return findings


def fewest_that(
    sent: Sequence[SentRequest], harmful: Callable[[Sequence[SentRequest]], bool], say: Say
) -> list[SentRequest]:
    """Returns as few requests of a record as still reproduce a failure, by leaving out ever smaller parts (delta
    debugging).
    """
    left = list(sent)
    size = len(left) // 2
    while size:
        begin = 0
        while begin < len(left):
            without = left[:begin] + left[begin + size :]
            if without and harmful(without):
                left = without
                say(f"{len(left)} requests left")
            else:
                begin += size
        size //= 2
    return left


def _played(caller: HostileCaller, topics: dict[str, str], sent: Sequence[SentRequest]) -> list[str]:
    with staged_cluster(caller) as staged:
        watch, tokens = Watch.of(staged.cluster), staged.entrance.sign_in()
        asyncio.run(_play(staged, _new_ids(staged.cluster, topics), sent, tokens))
        return [*watch.look(staged.cluster), *complaints(staged.cluster), *staged.leaks(tokens.values())]


def _new_ids(cluster: LocalCluster, topics: dict[str, str]) -> dict[bytes, bytes]:
    tls: dict[str, Any] = cluster.client_tls
    with Admin(bootstrap_servers=cluster.bootstrap_servers, **tls) as admin:
        known = {topic.name: bytes.fromhex(topic.topic_id) for topic in admin.describe_topics()}
    return {bytes.fromhex(topics[name]): known[name] for name in topics.keys() & known.keys()}


async def _play(
    staged: StagedCluster, new_ids: dict[bytes, bytes], sent: Sequence[SentRequest], tokens: dict[int, str]
) -> None:
    wire = Wire(staged.entrance, Vocabulary(staged.cluster.node_ids), SentLog(), 0, tokens)
    streams: dict[int, WireStream] = {}
    calls: set[asyncio.Future[object]] = set()
    for one in sent:
        data = one.data
        for old, new in new_ids.items():
            data = data.replace(old, new)
        method = BY_PATH[one.path]
        if one.action is Action.CALL:
            if len(calls) >= _AT_ONCE:
                _, calls = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            calls.add(asyncio.ensure_future(wire.call(one.node, method, data, _CALL_S)))
            continue
        if one.stream not in streams:
            streams[one.stream] = wire.open(one.node, method)
        stream = streams[one.stream]
        if one.action is Action.SEND:
            await stream.send(data)
        elif one.action is Action.HALF_CLOSE:
            calls.add(asyncio.ensure_future(stream.half_close(_CALL_S)))
        elif one.action is Action.CANCEL:
            await stream.cancel()
    if calls:
        await asyncio.wait(calls)
    await asyncio.sleep(_AFTER_S)
    for stream in streams.values():
        await stream.cancel()
    await wire.close()
