"""The log store itself, by its SDK."""

from __future__ import annotations

import os
import time
from functools import partial

from bench import sdk_client
from bench.figures import Figures
from bench.peers.clients.kill_watch import EVERY_S, KillWatch
from bench.peers.clients.target import Target
from quorumlog.sdk import Admin, NewTopic, Producer, RecordFuture


def create(target: Target) -> None:
    """Makes the topic."""
    with Admin(bootstrap_servers=target.servers) as admin:
        admin.create_topics([NewTopic(target.topic, target.partitions, 3, dict(target.configs))])


def leader(target: Target) -> str:
    """The node id of partition 0's leader."""
    with Admin(bootstrap_servers=target.servers) as admin:
        (described,) = admin.describe_topics([target.topic])
    return str(described.partitions[0].leader)


def produce(target: Target, size: int, count: int) -> Figures:
    """``send``, one call per record."""
    return sdk_client.produce_records(target.servers, target.topic, size=size, count=count, options=target.options)


def produce_arrow(target: Target, size: int, count: int) -> Figures:
    """``send_arrow``."""
    return sdk_client.produce_arrow(target.servers, target.topic, size=size, count=count, options=target.options)


def singly(target: Target, size: int, count: int) -> Figures:
    """``send(...).result()``."""
    return sdk_client.produce_singly(target.servers, target.topic, size=size, count=count, options=target.options)


def consume(target: Target, size: int, count: int) -> Figures:
    """``poll``, and every record's value looked at."""
    return _consume(target, size, count, arrow=False)


def consume_arrow(target: Target, size: int, count: int) -> Figures:
    """``poll_arrow``."""
    return _consume(target, size, count, arrow=True)


def _consume(target: Target, size: int, count: int, *, arrow: bool) -> Figures:
    return sdk_client.consume(
        target.servers,
        target.topic,
        partitions=target.partitions,
        size=size,
        count=count,
        arrow=arrow,
        options=target.options,
    )


def steady(target: Target, size: int) -> dict[str, object]:
    """A record every few milliseconds until a killed server has been got over."""
    value, watch = os.urandom(size), KillWatch()

    def done(sent_ns: int, future: RecordFuture) -> None:
        if future.exception() is None:
            watch.acknowledged(sent_ns)
        else:
            watch.failed()

    with Producer(bootstrap_servers=target.servers, **target.options) as producer:
        while not watch.over():
            future = producer.send(target.topic, value, partition=0)
            future.add_done_callback(partial(done, time.monotonic_ns()))
            time.sleep(EVERY_S)
    return watch.result()
