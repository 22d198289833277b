"""Judge of the effective settings of nodes: each node uses those that its own metadata contain."""

from __future__ import annotations

from collections.abc import Mapping

from quorumlog.server.config.dynamic_settings import configured_values
from quorumlog.server.config.options import NodeOptions
from quorumlog.server.metadata.image import MetadataImage
from quorumlog.server.step.dynamic_values import DynamicValues
from quorumlog.simulator.models.committed_partition import Violation

#: By key: the field of the effective values, and the factor between their units.
_FIELDS = {
    "max_request_bytes": ("request_bytes", 1),
    "replica_copy_bytes_per_second": ("copy_bytes_per_second", 1),
    "compaction_bytes_per_second": ("compaction_bytes_per_second", 1),
    "leader_imbalance_check_interval_seconds": ("imbalance_check_interval_us", 1_000_000),
    "scrub_bytes_per_second": ("scrub_bytes_per_second", 1),
    "kafka_max_connections_per_ip": ("kafka_connections_per_ip", 1),
    "offsets_retention_ms": ("offsets_retention_ms", 1),
}


class SettingsJudge:
    """Observes the settings that nodes hand to their processes.

    A process that starts has the configured values.
    """

    def __init__(self) -> None:
        self._lives: dict[int, int] = {}
        self._used: dict[int, DynamicValues] = {}

    def stepped(
        self, options: NodeOptions, life: int, image: MetadataImage | None, changed: DynamicValues | None
    ) -> None:
        """Judges a step of a node.

        Arguments:
            life: number of its process.
            changed: the values that the step has handed over; None: they stay as they were.

        Raises:
            Violation: the process uses others than its own metadata contain.
        """
        node_id = options.node_id
        if self._lives.get(node_id) != life:
            self._lives[node_id] = life
            self._used[node_id] = configured_values(options)
        if changed is not None:
            self._used[node_id] = changed
        if image is not None and image.node_settings.index:
            check_settings(node_id, configured_values(options), self._used[node_id], image)


def check_settings(node_id: int, configured: DynamicValues, used: DynamicValues, image: MetadataImage) -> None:
    """Checks that a node uses the values that its own metadata contain, and its configured ones otherwise.

    Raises:
        Violation: it does not.
    """
    records = image.node_settings.records
    for key, (field, factor) in _FIELDS.items():
        recorded = next((record[key] for record in _records(records, node_id) if key in record), None)
        expected = getattr(configured, field) if recorded is None else int(recorded) * factor
        found = getattr(used, field)
        if found != expected:
            raise Violation(f"node {node_id} uses {field} = {found}: its records say {expected}")
    levels = dict(configured.log_levels)
    for record in reversed(_records(records, node_id)):
        levels |= {
            key.removeprefix("log_level").removeprefix("."): level
            for key, level in record.items()
            if key.startswith("log_level")
        }
    if used.log_levels != levels:
        raise Violation(f"node {node_id} logs at {used.log_levels}: its records say {levels}")


def _records(records: Mapping[int | None, Mapping[str, str]], node_id: int) -> list[Mapping[str, str]]:
    return [records[each] for each in (node_id, None) if each in records]
