"""The consumer: fetches records, keeps positions, and takes part in a consumer group.

May import: `sdk` itself, `runtime`, `records`, `cluster`.

- ``consumer``, ``async_consumer``: the public clients, for threads and for asyncio.
- ``config``: options of a consumer, with Kafka's names and defaults.
- ``core``: the part that both clients share.
- ``assignment``: the assigned partitions: the position in each, and the records fetched ahead.
- ``positions``: looks up the start of partitions without a usable position.
- ``fetcher``: fetches ahead of the application, within a limit in bytes.
- ``fetch_session``: a session with one node, so that requests contain only changes.
- ``iteration``: single records of the last poll.
- ``subscription``: subscribed topics, and the listener for rebalances of the group.
- ``group_consumer``: a consumer's part in its group: assignment, rebalances and commits.
- ``group_session``: sends heartbeats in the background.
- ``group_membership``: the membership as a state machine without I/O (KIP-848).
- ``commits``: commits and fetches the group's offsets.
- ``commit_future``: a handle for the outcome of a commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorumlog.sdk.consumer.consumer import Consumer

__all__ = ["Consumer"]


def __getattr__(name: str) -> Any:
    # Loaded on first use: a caller that needs only the options must not wait for the whole client.
    if name == "Consumer":
        from quorumlog.sdk.consumer.consumer import Consumer

        return Consumer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
