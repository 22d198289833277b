"""Settings of nodes that are changed at run time, as a part of the metadata image: pure, and identical on every node.

A record has values by key: one record for all nodes, and one for each node, which takes precedence key by key. The
image stores text. Only the number of entries is checked when a change is applied, because versions may differ in the
keys and values that they accept; the controller checks the rest before a change enters the log. ``index`` grows with
every change, so that the records need not be read again before that.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import metadata_log_pb2, peer_pb2
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.v1.node_settings_pb2 import (
    AlterNodeSettingsRequest,
    AlterNodeSettingsResponse,
    NodeSettingsAlteration,
    NodeSettingsRecord,
)
from quorumlog.wire.request_limits import MAX_NODE_SETTINGS_CHANGED

#: Number of entries in one record.
MAX_ENTRIES = 100
#: Characters of a key and of a value.
MAX_KEY_LENGTH, MAX_VALUE_LENGTH = 128, 256


class SettingsRecords:
    """The records of a cluster.

    Attributes:
        index: of the last entry of the metadata log that changed them; 0 if none has.
        records: values by key, by node id; those of all nodes have the key None.
    """

    def __init__(self) -> None:
        self.index = 0
        self.records: dict[int | None, dict[str, str]] = {}

    # -- asking -----------------------------------------------------------------------------------------------

    def of(self, node_id: int | None) -> Mapping[str, str]:
        """Returns the values in the record of a node, or of all nodes (None)."""
        return self.records.get(node_id, {})

    def shown(self) -> list[NodeSettingsRecord]:
        """Returns all records: that of all nodes, then by node."""
        ordered = sorted(self.records, key=lambda node: -1 if node is None else node)
        return [NodeSettingsRecord(node_id=node, values=self.records[node]) for node in ordered]

    # -- changes ----------------------------------------------------------------------------------------------

    def check(self, alterations: Iterable[NodeSettingsAlteration], nodes: Container[int]) -> Error | None:
        """Returns the error if a record would exceed the limit or be of a node that is not registered, or None.

        Arguments:
            nodes: the registered nodes.
        """
        for each in alterations:
            altered = self._altered(each)
            if altered and each.HasField("node_id") and each.node_id not in nodes:
                problem = f"node {each.node_id} is not registered: name a node of quorumlog nodes list"
                return error(ErrorCode.INVALID_REQUEST, problem)
            if len(altered) > MAX_ENTRIES:
                problem = f"{name_of(each)} would have {len(altered)} settings of {MAX_ENTRIES}: delete unused ones"
                return error(ErrorCode.POLICY_VIOLATION, problem)
        return None

    def alter(
        self, index: int, command: metadata_log_pb2.NodeSettingsAltered, nodes: Container[int]
    ) -> peer_pb2.ControllerResponse:
        """Sets and removes values, all or none, when the entry is applied.

        Arguments:
            index: of the entry.
            nodes: the registered nodes.
        """
        refused = self.check(command.alterations, nodes)
        if refused is not None:
            return peer_pb2.ControllerResponse(alter_node_settings=AlterNodeSettingsResponse(error=refused))
        changed = 0
        for each in command.alterations:
            node, values = _node_of(each), self._altered(each)
            changed += values != self.records.get(node, {})
            if values:
                self.records[node] = values
            else:
                self.records.pop(node, None)
        if changed:
            self.index = index
        return peer_pb2.ControllerResponse(alter_node_settings=AlterNodeSettingsResponse(altered=changed))

    def forget(self, index: int, node_id: int) -> None:
        """Deletes the record of a node that was removed from the cluster.

        Arguments:
            index: of the entry that removed it.
        """
        if self.records.pop(node_id, None) is not None:
            self.index = index

    def _altered(self, alteration: NodeSettingsAlteration) -> dict[str, str]:
        """Returns the values of a record after a change."""
        values = dict(self.of(_node_of(alteration)))
        for op in alteration.ops:
            if op.HasField("value"):
                values[op.key] = op.value
            else:
                values.pop(op.key, None)
        return values

    # -- snapshots --------------------------------------------------------------------------------------------

    @classmethod
    def from_snapshot(cls, snapshot: metadata_log_pb2.MetadataSnapshot) -> SettingsRecords:
        """Returns the records from a snapshot."""
        made = cls()
        made.index = snapshot.node_settings_index
        made.records = {
            each.node_id if each.HasField("node_id") else None: dict(each.values) for each in snapshot.node_settings
        }
        return made


def _node_of(alteration: NodeSettingsAlteration) -> int | None:
    return alteration.node_id if alteration.HasField("node_id") else None


def name_of(alteration: NodeSettingsAlteration) -> str:
    """Returns the name of the record that is changed, for messages."""
    return f"node {alteration.node_id}" if alteration.HasField("node_id") else "all nodes"


# -- checks of requests -------------------------------------------------------------------------------------------


def check_node_settings_size(request: AlterNodeSettingsRequest) -> Error | None:
    """Returns the error for a request with too many or too long entries, or with none, or None."""
    targets = [_node_of(each) for each in request.alterations]
    ops = [op for each in request.alterations for op in each.ops]
    if not ops or len(ops) > MAX_NODE_SETTINGS_CHANGED or len(targets) > MAX_NODE_SETTINGS_CHANGED:
        problem = f"{len(ops)} settings in the request: give 1 to {MAX_NODE_SETTINGS_CHANGED} in one request"
    elif len(set(targets)) < len(targets):
        problem = "a node is in the request twice: name each once"
    else:
        found = (_problem_with(each) for each in request.alterations)
        first = next((each for each in found if each is not None), None)
        if first is None:
            return None
        problem = first
    return error(ErrorCode.INVALID_REQUEST, problem)


def _problem_with(alteration: NodeSettingsAlteration) -> str | None:
    keys = [op.key for op in alteration.ops]
    if not keys:
        return f"no change is requested for {name_of(alteration)}: give a setting"
    if len(set(keys)) < len(keys):
        return f"a setting of {name_of(alteration)} is given twice: name each once"
    if any(not 1 <= len(key) <= MAX_KEY_LENGTH for key in keys):
        return f"the name of a setting does not have 1 to {MAX_KEY_LENGTH} characters: see quorumlog nodes settings"
    for op in alteration.ops:
        if len(op.value) > MAX_VALUE_LENGTH:
            return f"the value of {op.key[:40]} has {len(op.value)} characters: give at most {MAX_VALUE_LENGTH}"
    return None
