"""Authentication, authorization and the audit log of a node."""

from __future__ import annotations

from quorumlog.server.access.access_errors import Refusals
from quorumlog.server.access.audit import AuditTrail
from quorumlog.server.access.authorizer import Authorizer
from quorumlog.server.access.request_authentication import Admission
from quorumlog.server.access.scram_sign_in import ScramSignIns
from quorumlog.server.access.sessions import Sessions
from quorumlog.server.access.sign_in_rules import SignInRules
from quorumlog.server.access.token_sign_in import TokenSignIns
from quorumlog.server.node.member_context import MemberContext
from quorumlog.server.requests.metadata_staleness import RulesAge
from quorumlog.server.requests.partition_errors import PartitionErrors


class AccessServices:
    """The services that decide what a client may do.

    Attributes:
        audit: writes the audit log.
        refusals: makes the errors for clients that lack a permission.
        sessions: of clients authenticated with a password or a token.
        admission: authenticates requests.
        absent: makes the errors for partitions that have no replica here.
    """

    def __init__(self, context: MemberContext) -> None:
        resources, image_age, time = context.resources, context.image_age, context.time
        options, metadata, replies = resources.options.authorization, context.metadata.replica, resources.replies
        self.audit = AuditTrail(options.audited, time, metadata, image_age)
        replies.listener = self.audit
        self.refusals = Refusals(Authorizer(options, metadata), self.audit)
        self.sessions = Sessions(resources.rng, resources.options.session_lifetime_us)
        self.admission = Admission(metadata, self.sessions, options.token_users)
        rules = SignInRules(options, metadata, self.sessions, self.audit)
        self.sign_ins = ScramSignIns(rules, replies, resources.rng)
        self.token_sign_ins = TokenSignIns(rules, resources.token_keys, replies)
        self.absent = PartitionErrors(metadata, self.refusals, RulesAge(options, image_age, time))
