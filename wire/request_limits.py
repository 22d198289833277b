"""Limits on the number of items in a request. A node refuses more; a client that needs more splits the request.

The messages cannot express this themselves, and both sides have to agree.
"""

from __future__ import annotations

#: Items in any list of a request.
MAX_ITEMS = 10_000
#: Topics that one request creates, deletes or changes: all of them are decided in one step of the controller.
MAX_CHANGED_TOPICS = 100
#: Targets of any kind that one change names, and partitions that one request moves. With their ids, they must still fit
#: into messages between nodes.
MAX_CHANGE_TARGETS = 2_000
#: Producer names that one request deletes, looks up or lists.
MAX_PRODUCER_NAMES = 1_000
#: Lowest limit for copies of replicas, in bytes per second. With a lower one, the slices of a few concurrent snapshots
#: would arrive so late that their receivers give up.
LEAST_THROTTLE = 1 << 20
#: ACLs that one request creates, and that one response about deletions lists.
MAX_ACLS_CHANGED = 1_000
#: Filters of one request to delete ACLs.
MAX_ACL_FILTERS = 100
#: Users, or revocations, that one request changes or requests.
MAX_CREDENTIALS_CHANGED = 1_000
#: Characters of a bearer token, in its compact form.
MAX_BEARER_TOKEN_LENGTH = 16 << 10
#: Principals whose quotas one request changes or requests.
MAX_QUOTAS_CHANGED = 1_000
#: Settings of nodes that one request changes, over all of its records.
MAX_NODE_SETTINGS_CHANGED = 200
