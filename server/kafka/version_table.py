"""APIs and versions that a node supports: reported to clients by ApiVersions, and enforced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from quorumlog.server.kafka.codec.apis import APIS, Api
from quorumlog.server.kafka.codec.produce_requests import ProduceRequest
from quorumlog.server.kafka.codec.version_requests import ApiVersionsRequest
from quorumlog.server.kafka.codec.version_responses import ApiVersion, ApiVersionsResponse

API_VERSIONS = ApiVersionsRequest.API_KEY
#: Kafka's error code.
UNSUPPORTED_VERSION = 35
#: Advertised below the lowest supported version: librdkafka does not compress for a server that does not advertise
#: version 0 (KAFKA-18659).
_LOWEST_TOLD = {ProduceRequest.API_KEY: 0}


class VersionTable:
    """The supported APIs; ``ApiVersions`` is always one of them.

    Arguments:
        served: keys of the other APIs.
        highest: the highest supported version of some APIs; of the others it is the highest that the codec can read.
    """

    def __init__(self, served: Iterable[int], highest: Mapping[int, int] | None = None) -> None:
        self._apis = {key: APIS[key] for key in sorted({API_VERSIONS, *served})}
        known = {key: api.request.HIGHEST for key, api in self._apis.items()}
        self._highest = known | {key: min(known[key], version) for key, version in (highest or {}).items()}

    def find(self, api_key: int, version: int) -> Api | None:
        """Returns an API, or None if it is not supported in this version."""
        api = self._apis.get(api_key)
        return api if api is not None and api.request.LOWEST <= version <= self._highest[api_key] else None

    def response(self, error_code: int = 0) -> ApiVersionsResponse:
        """Returns the response to ApiVersions."""
        listed = [
            ApiVersion(key, _LOWEST_TOLD.get(key, api.request.LOWEST), self._highest[key])
            for key, api in self._apis.items()
        ]
        return ApiVersionsResponse(error_code, listed)
