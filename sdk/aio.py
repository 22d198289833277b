"""The clients for asyncio: the same as in `quorumlog.sdk`, with ``await``."""

from quorumlog.sdk.async_admin import AsyncAdmin
from quorumlog.sdk.async_consumer import AsyncConsumer
from quorumlog.sdk.async_producer import AsyncProducer

__all__ = ["AsyncAdmin", "AsyncConsumer", "AsyncProducer"]
