"""Puts the settings of this node into effect that were changed at run time: at each change, and after a restart."""

from __future__ import annotations

from dataclasses import fields

from quorumlog.server.config.dynamic_settings import RuntimeSettings, problem_with_value
from quorumlog.server.node.member_context import MemberContext
from quorumlog.server.node.member_services import MemberServices
from quorumlog.server.step.dynamic_values import DynamicValues


class SettingsInEffect:
    """Follows the records of all nodes and of this one, and hands changed values to the parts that use them.

    A node that starts has the values of the metadata in its last checkpoint until it replays what follows them.

    Attributes:
        changed: the changed values, until ``take_changed`` is called.
    """

    def __init__(self, context: MemberContext, services: MemberServices) -> None:
        self._context = context
        self._services = services
        self._settings = RuntimeSettings(context.resources.options)
        self._known_index = 0
        self.changed: DynamicValues | None = None

    @property
    def values(self) -> DynamicValues:
        """The effective values."""
        return self._settings.values

    def follow(self) -> None:
        """Applies the records if they have changed."""
        records = self._context.metadata.replica.image.node_settings
        if records.index == self._known_index:
            return
        self._known_index = records.index
        before, own = self._settings.values, records.of(self._context.resources.options.node_id)
        ignored = self._settings.follow((records.of(None), own))
        log = self._context.resources.log
        for key in ignored:
            value = own.get(key, records.of(None).get(key, ""))
            log("warning", "setting_ignored", setting=key, reason=problem_with_value(key, value))
        values = self._settings.values
        if values != before:
            self._put_into_effect(values)
            log("info", "settings_changed", **_changed(before, values))

    def _put_into_effect(self, values: DynamicValues) -> None:
        resources, services, now = self._context.resources, self._services, self._context.time.now
        resources.log.levels.follow(values.log_levels)
        resources.pace.limit_node(values.copy_bytes_per_second)
        resources.scrub.set_rate(now, values.scrub_bytes_per_second)
        services.logs.produce.limit_requests(values.request_bytes)
        services.logs.compactions.set_rate(values.compaction_bytes_per_second)
        services.replicas.elections.check_every(now, values.imbalance_check_interval_us)
        services.groups.keep_offsets_for(values.offsets_retention_ms)
        services.access.audit.switch(enabled=values.audited)
        self.changed = values

    def take_changed(self) -> DynamicValues | None:
        """Returns the values if they have changed since the last call, for the process."""
        changed, self.changed = self.changed, None
        return changed


def _changed(before: DynamicValues, values: DynamicValues) -> dict[str, object]:
    """Returns the changed values by name, for the log."""
    changed = {
        each.name: getattr(values, each.name)
        for each in fields(values)
        if getattr(values, each.name) != getattr(before, each.name)
    }
    if "log_levels" in changed:
        levels = sorted(values.log_levels.items())
        changed["log_levels"] = ",".join(f"{logger}={level}" if logger else level for logger, level in levels)
    return changed
