"""The producer: gathers records into batches and sends them in order.

May import: `sdk` itself, `runtime`, `records`, `cluster`.

- ``producer``, ``async_producer``: the public clients, for threads and for asyncio.
- ``config``: options of a producer, with Kafka's names and defaults.
- ``accumulator``: gathers records into batches, between the threads that send and the loop that ships.
- ``batch``: one batch: first gathered records, then bytes to send.
- ``explanation``: timing of one record, by stages.
- ``delivery``: handles for the outcome of sent records.
- ``record_intake``: checks given records, chooses their partitions, and adds them to batches.
- ``sender``: takes batches from the accumulator, sends them to leaders, and resolves them.
- ``partition_pipeline``: sent and unresolved batches of one partition, in order across failures; the target of retries;
  the end of a named producer's epoch.
- ``request_packing``: groups batches into produce requests.
- ``transaction``, ``async_transaction``: the ``with`` block of a transaction.
- ``transaction_control``: how transactions start and end, and what an interruption leaves behind.
- ``identity``: obtains the identity of an idempotent producer.
- ``recreated_topics``: handles topics that were deleted and created again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quorumlog.sdk.producer.producer import Producer

__all__ = ["Producer"]


def __getattr__(name: str) -> Any:
    # Loaded on first use: a caller that needs only the options must not wait for the whole client.
    if name == "Producer":
        from quorumlog.sdk.producer.producer import Producer

        return Producer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
