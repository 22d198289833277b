"""The effective values of the settings that can be changed at run time, as a node hands them to its process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(slots=True, frozen=True)
class DynamicValues:
    """The effective values of the settings that can be changed at run time.

    Arguments:
        request_bytes: of batches in one produce request.
        copy_bytes_per_second: to replicas that are being added on other nodes; 0: no limit.
        compaction_bytes_per_second: that compaction reads.
        imbalance_check_interval_us: between looks for leaderships that belong to another node.
        scrub_bytes_per_second: that the scrub reads; 0: no scrub.
        kafka_connections_per_ip: of Kafka's clients from one address.
        offsets_retention_ms: of unused committed offsets.
        audited: denials and changes are written to the audit log.
        log_levels: by logger; "" is the level of the loggers without one of their own.
    """

    request_bytes: int
    copy_bytes_per_second: int
    compaction_bytes_per_second: int
    imbalance_check_interval_us: int
    scrub_bytes_per_second: int
    kafka_connections_per_ip: int
    offsets_retention_ms: int
    audited: bool
    log_levels: Mapping[str, str] = field(default_factory=dict)


class FollowsSettings(Protocol):
    """A part of a node's process whose limits or outputs can be changed at run time."""

    def follow_settings(self, values: DynamicValues) -> None:
        """Applies the values from now on."""
