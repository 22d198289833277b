"""The clients for asyncio: the same as in `quorumlog.sdk`, with ``await``."""

from quorumlog.sdk.admin.async_admin import AsyncAdmin
from quorumlog.sdk.consumer.async_consumer import AsyncConsumer
from quorumlog.sdk.producer.async_producer import AsyncProducer

__all__ = ["AsyncAdmin", "AsyncConsumer", "AsyncProducer"]
