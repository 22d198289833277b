"""The ACLs of a cluster, as a part of the metadata image: pure, and identical on every node.

A decision looks only at the ACLs that apply to the resource's name: those of that name, those of each prefix of it, and
those of all names. ``index`` shows when they changed last, so that decisions can be cached until it grows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from quorumlog.server.metadata.acl_rules import EVERY_NAME, AclRule, acl_of, is_meant, rule_of
from quorumlog.server.step.wire_errors import error
from quorumlog.v1 import metadata_log_pb2, peer_pb2
from quorumlog.v1.acls_pb2 import (
    ACL_PATTERN_LITERAL,
    ACL_PATTERN_PREFIXED,
    Acl,
    AclFilter,
    AclResourceType,
    CreateAclsResponse,
    DeleteAclsResponse,
)
from quorumlog.v1.errors_pb2 import Error, ErrorCode
from quorumlog.wire.request_limits import MAX_ACLS_CHANGED

#: Maximum number of ACLs in one cluster.
MAX_ACLS = 10_000

#: ACLs are indexed by resource type, pattern type and name.
_Place = tuple[int, int, str]


class AccessControlLists:
    """The ACLs of a cluster.

    Attributes:
        index: of the last entry of the metadata log that changed them; 0 if none has.
    """

    def __init__(self) -> None:
        self.index = 0
        self._created: dict[AclRule, int] = {}
        self._by_place: dict[_Place, dict[AclRule, None]] = {}
        #: By resource type: the number of prefixes of each length.
        self._prefix_lengths: dict[int, dict[int, int]] = {}

    def __len__(self) -> int:
        return len(self._created)

    def __iter__(self) -> Iterator[AclRule]:
        """Iterates over all ACLs, in order."""
        return iter(sorted(self._created))

    # -- finding --------------------------------------------------------------------------------------------------

    def concerning(self, kind: AclResourceType.ValueType, name: str) -> Iterator[AclRule]:
        """Yields the ACLs that apply to a resource, for all principals and operations."""
        yield from self._by_place.get((kind, ACL_PATTERN_LITERAL, name), ())
        if name != EVERY_NAME:
            yield from self._by_place.get((kind, ACL_PATTERN_LITERAL, EVERY_NAME), ())
        for length in self._prefix_lengths.get(kind, ()):
            if length <= len(name):
                yield from self._by_place.get((kind, ACL_PATTERN_PREFIXED, name[:length]), ())

    def of_type(self, kind: AclResourceType.ValueType) -> Iterator[AclRule]:
        """Yields the ACLs for resources of a type."""
        return (rule for rule in self._created if rule.resource_type == kind)

    def meant(self, wanted: Iterable[AclFilter], created_up_to: int | None = None) -> list[AclRule]:
        """Returns the ACLs that at least one of the filters matches, in order.

        Arguments:
            created_up_to: only those created by this entry or an earlier one; None: all.
        """
        filters = tuple(wanted)
        return sorted(
            rule
            for rule, created in self._created.items()
            if (created_up_to is None or created <= created_up_to) and any(is_meant(rule, each) for each in filters)
        )

    # -- changing -------------------------------------------------------------------------------------------------

    def check_creation(self, acls: Iterable[Acl]) -> Error | None:
        """Returns the error if creating the ACLs would exceed the limit, or None."""
        new = {rule_of(acl) for acl in acls} - self._created.keys()
        if len(self._created) + len(new) <= MAX_ACLS:
            return None
        problem = (
            f"the cluster has {len(self._created)} rules of {MAX_ACLS}, {len(new)} more are too many: use prefixes, or"
            " delete unused ones (quorumlog acls delete)"
        )
        return error(ErrorCode.POLICY_VIOLATION, problem)

    def create(self, index: int, command: metadata_log_pb2.AclsCreated) -> peer_pb2.ControllerResponse:
        """Creates ACLs, all or none, when the entry is applied.

        Arguments:
            index: of the entry.
        """
        refused = self.check_creation(command.acls)
        if refused is not None:
            return peer_pb2.ControllerResponse(create_acls=CreateAclsResponse(error=refused))
        before = len(self._created)
        for acl in command.acls:
            self._add(rule_of(acl), index)
        created = len(self._created) - before
        if created:
            self.index = index
        return peer_pb2.ControllerResponse(create_acls=CreateAclsResponse(created=created))

    def delete(self, index: int, command: metadata_log_pb2.AclsDeleted) -> peer_pb2.ControllerResponse:
        """Deletes ACLs when the entry is applied.

        Arguments:
            index: of the entry.
        """
        deleted = self.meant(command.filters, command.created_up_to)
        for rule in deleted:
            self._remove(rule)
        if deleted:
            self.index = index
        shown = [acl_of(rule) for rule in deleted[:MAX_ACLS_CHANGED]]
        return peer_pb2.ControllerResponse(delete_acls=DeleteAclsResponse(acls=shown, deleted=len(deleted)))

    def _add(self, rule: AclRule, index: int) -> None:
        if rule in self._created:
            return
        self._created[rule] = index
        place = (rule.resource_type, rule.pattern_type, rule.resource_name)
        rules = self._by_place.setdefault(place, {})
        if not rules and rule.pattern_type == ACL_PATTERN_PREFIXED:
            lengths = self._prefix_lengths.setdefault(rule.resource_type, {})
            lengths[len(rule.resource_name)] = lengths.get(len(rule.resource_name), 0) + 1
        rules[rule] = None

    def _remove(self, rule: AclRule) -> None:
        del self._created[rule]
        place = (rule.resource_type, rule.pattern_type, rule.resource_name)
        rules = self._by_place[place]
        del rules[rule]
        if rules:
            return
        del self._by_place[place]
        if rule.pattern_type == ACL_PATTERN_PREFIXED:
            lengths = self._prefix_lengths[rule.resource_type]
            lengths[len(rule.resource_name)] -= 1
            if not lengths[len(rule.resource_name)]:
                del lengths[len(rule.resource_name)]

    # -- snapshots ------------------------------------------------------------------------------------------------

    def records(self) -> list[metadata_log_pb2.AclRecord]:
        """Returns all ACLs in the form of a snapshot."""
        return [metadata_log_pb2.AclRecord(acl=acl_of(rule), created_index=self._created[rule]) for rule in self]

    @classmethod
    def from_snapshot(cls, snapshot: metadata_log_pb2.MetadataSnapshot) -> AccessControlLists:
        """Returns the ACLs from a snapshot."""
        made = cls()
        for record in snapshot.acls:
            made._add(rule_of(record.acl), record.created_index)
        made.index = snapshot.acls_index
        return made
