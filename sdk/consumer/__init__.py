"""The consumer: fetches, keeps positions, and takes its part in a consumer group.

May import: `sdk` itself, `runtime`, `records`, `cluster`.

- ``consumer``, ``async_consumer``: what users call, from threads and from asyncio.
- ``config``: what a consumer can be told, with Kafka's names and defaults.
- ``core``: what the two share: everything but how their callers wait.
- ``assignment``: the partitions that are read: the position in each, and what was fetched ahead.
- ``positions``: where to begin in a partition without a usable position.
- ``fetcher``: fetches ahead of the application, within a bound of bytes.
- ``fetch_session``: a session with one node, so that requests say only what has changed.
- ``iteration``: records one by one out of what a poll brought.
- ``subscription``: which topics are read, and who is told when the consumer group moves partitions.
- ``group_consumer``: the consumer's part in its group: reading follows what the group gives it.
- ``group_session``: keeps the membership alive with heartbeats, whatever the application does.
- ``group_membership``: the membership as a state machine without I/O (KIP-848).
- ``commits``: commits the group's offsets and reads them.
- ``commit_future``: what a caller holds of a commit on its way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorumlog.sdk.consumer.consumer import Consumer

__all__ = ["Consumer"]


def __getattr__(name: str) -> Any:
    # Loaded when first used: whoever needs only the options must not wait for all of the client.
    if name == "Consumer":
        from quorumlog.sdk.consumer.consumer import Consumer

        return Consumer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
