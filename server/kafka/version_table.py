"""APIs and versions that a node supports: reported to clients by ApiVersions, and enforced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from quorumlog.server.kafka.codec.apis import APIS, Api
from quorumlog.server.kafka.codec.produce_requests import ProduceRequest
from quorumlog.server.kafka.codec.version_requests import ApiVersionsRequest
from quorumlog.server.kafka.codec.version_responses import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from quorumlog.server.metadata.records import FIRST_FEATURE_LEVEL, THIRD_FEATURE_LEVEL

API_VERSIONS = ApiVersionsRequest.API_KEY
#: Kafka's error code.
UNSUPPORTED_VERSION = 35
#: Advertised below the lowest supported version: librdkafka does not compress for a server that does not advertise
#: version 0 (KAFKA-18659).
_LOWEST_TOLD = {ProduceRequest.API_KEY: 0}
#: The feature by which clients learn that leaders add partitions to transactions, each with an epoch of its own
#: (KIP-890), and its level. Below a feature level of the cluster there are no transactions.
_TRANSACTIONS, _TRANSACTIONS_LEVEL = "transaction.version", 2
_WITH_TRANSACTIONS = THIRD_FEATURE_LEVEL
#: From this version on, ApiVersions may name features whose lowest level is 0 (KAFKA-17011).
_LEVEL_ZERO = 4


class VersionTable:
    """The supported APIs; ``ApiVersions`` is always one of them.

    Arguments:
        served: keys of the other APIs.
        highest: the highest supported version of some APIs; of the others it is the highest that the codec can read.
        feature_level: returns the current feature level of the cluster.
    """

    def __init__(
        self,
        served: Iterable[int],
        highest: Mapping[int, int] | None = None,
        feature_level: Callable[[], int] = lambda: FIRST_FEATURE_LEVEL,
    ) -> None:
        self._feature_level = feature_level
        self._apis = {key: APIS[key] for key in sorted({API_VERSIONS, *served})}
        known = {key: api.request.HIGHEST for key, api in self._apis.items()}
        self._highest = known | {key: min(known[key], version) for key, version in (highest or {}).items()}

    def find(self, api_key: int, version: int) -> Api | None:
        """Returns an API, or None if it is not supported in this version."""
        api = self._apis.get(api_key)
        return api if api is not None and api.request.LOWEST <= version <= self._highest[api_key] else None

    def response(self, version: int, error_code: int = 0) -> ApiVersionsResponse:
        """Returns the response to ApiVersions in a version."""
        listed = [
            ApiVersion(key, _LOWEST_TOLD.get(key, api.request.LOWEST), self._highest[key])
            for key, api in self._apis.items()
        ]
        level = self._feature_level()
        supported = [SupportedFeatureKey(_TRANSACTIONS, 0, _TRANSACTIONS_LEVEL)] if version >= _LEVEL_ZERO else []
        finalized = [FinalizedFeatureKey(_TRANSACTIONS, _TRANSACTIONS_LEVEL, _TRANSACTIONS_LEVEL)]
        return ApiVersionsResponse(
            error_code,
            listed,
            supported_features=supported,
            # Clients believe the node that reports the highest epoch: feature levels only rise.
            finalized_features_epoch=level,
            finalized_features=finalized if level >= _WITH_TRANSACTIONS else [],
        )
