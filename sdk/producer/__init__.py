"""The producer: gathers records into batches, and sends them in order.

May import: `sdk` itself, `runtime`, `records`, `cluster`.

- ``producer``, ``async_producer``: what users call, from threads and from asyncio.
- ``config``: what a producer can be told, with Kafka's names and defaults.
- ``accumulator``: gathers records into batches: here the threads that send meet the loop that ships.
- ``batch``: one batch: records that are gathered, then bytes that are sent.
- ``explanation``: the way of one record, told by stages.
- ``delivery``: what a caller holds of a record on its way.
- ``sender``: takes batches from the accumulator, sends them to leaders, and settles them.
- ``partition_pipeline``: the batches of one partition that are sent and not settled, in order across failures; where
  they are sent again; how the epoch of a named producer ends.
- ``request_packing``: which batches share a produce request.
- ``identity``: where the identity of an idempotent producer comes from.
- ``recreated_topics``: what happens when a topic was deleted and created again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorumlog.sdk.producer.producer import Producer

__all__ = ["Producer"]


def __getattr__(name: str) -> Any:
    # Loaded when first used: whoever needs only the options must not wait for all of the client.
    if name == "Producer":
        from quorumlog.sdk.producer.producer import Producer

        return Producer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
