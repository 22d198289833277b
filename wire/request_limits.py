"""How many things one request may name. A node refuses more; a client that wants more asks in parts.

The messages cannot say this themselves, and both sides have to mean the same.
"""

from __future__ import annotations

#: Items in any list of a request.
MAX_ITEMS = 10_000
#: Topics that one request creates, deletes or changes: all of them are decided on in one step of the controller.
MAX_CHANGED_TOPICS = 100
#: Things of any kind that one change names, and partitions that one request moves. With their ids they must still fit
#: between nodes.
MAX_CHANGE_TARGETS = 2_000
#: Producer names that one request deletes, looks up or lists.
MAX_PRODUCER_NAMES = 1_000
#: Bytes per second to which copies of replicas can be limited at least. Slower, and the slices of a few snapshots that
#: share it would come so late that their receivers give up.
LEAST_THROTTLE = 1 << 20
#: Rules of who may do what that one request creates, and that one answer about deletions shows.
MAX_ACLS_CHANGED = 1_000
#: Filters of one request to delete such rules.
MAX_ACL_FILTERS = 100
#: Users, or revocations, that one request changes or asks for.
MAX_CREDENTIALS_CHANGED = 1_000
#: Characters of a bearer token, in its compact form, by which a client signs in.
MAX_BEARER_TOKEN_LENGTH = 16 << 10
#: Principals whose quotas one request changes or asks for.
MAX_QUOTAS_CHANGED = 1_000
