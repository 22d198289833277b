"""Transactions: the state machine of a transaction coordinator and the decisions of its leader (KIP-98, 360, 447, 890).

The order of the coordinator's log is the fence. A *place* is a term and an index of that log. A transaction is
identified by the place at which it origin, and ends at the place of its decision; a participant accepts nothing of a
transaction that started at or before the newest decision that it has received.

May import: `deciding`, `hosting`, `metadata`, `access`.

The modules, in the order in which a request passes them:

- `transaction_service`: receives requests of clients and of other nodes, and events of the node.
- `transaction_calls`: the calls that a coordinator decides, and how each is answered.
- `commit_hold`: holds commits back for a moment, for a backup.
- `transaction_administration`: the calls of operators, who list, describe and abort, and of backups.
- `transaction_views`: what operators see of transactional ids.
- `transaction_leader`: one term of one coordinator: calls, timeouts, and the removal of unused ids.

Then a decision is made, without any I/O:

- `transaction_draft`: a view of the transactional ids in which requests make changes, until these become one command.
- `transaction_decisions`: the effect of each request, and its answer; what became of a transaction.

Then the command is replicated with Raft:

- `transaction_shard`: the replica, and the kind of coordinator that it is.
- `transaction_table`: the transactional ids as the log has made them, the same on every replica.
- `transaction_record`: one transactional id, its open transaction and its decisions.
- `transaction_forms`: the representation of all this in the log and in requests.

Then the decision reaches the participants:

- `markers_due`: pushes each decision until every participant has answered.
- `participants`: the other side: what a node that leads participants needs from coordinators.
"""
