"""The module ``test.service`` of kafka-python's tests, which its package lacks, for a broker that already runs."""

from __future__ import annotations


class ExternalService:
    """A broker that runs before a test and after it."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def open(self) -> None:
        """Does nothing: the broker is up."""

    def close(self) -> None:
        """It stays."""

    def stop(self) -> None:
        """It stays."""


class SpawnedService:
    """A broker of a test's own: none exists."""

    def __init__(self, *arguments: object) -> None:
        raise NotImplementedError("these tests run against an existing broker")
