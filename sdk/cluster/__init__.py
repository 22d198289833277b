"""The cluster from a client's view: connections, metadata, leaders, coordinators.

May import: `sdk` itself, `runtime`, `records`.

- ``cluster``: connections to nodes, and metadata of the topics in use.
- ``connection``: one node: a channel, and its streams for producing and fetching.
- ``call_limiter``: limits concurrent unary calls of one connection; others wait in order.
- ``node_session``: an authenticated session with a node, by password or token, with renewal.
- ``blocking_session``: the same for blocking calls.
- ``metadata``: a client's metadata; older state never replaces newer state.
- ``leader_calls``: sends requests to the leaders of several partitions at once.
- ``request_parts``: splits requests that exceed the limit of items.
- ``shared_calls``: one call for all tasks that wait for the same answer.
- ``leader_probe``: asks replicas for a new leader when a leader is silent.
- ``outage_log``: log messages while nodes do not serve a partition.
- ``offset_search``: state of a search for offsets, without I/O.
- ``offset_lookup``: runs such a search at the leaders.
- ``coordinators``: coordinators of consumer groups and of transactional ids.
- ``transaction_coordinator``: requests to the coordinator of a transactional id, with retries.
- ``topic_ids``: resolves names to topic ids once, before a change.
- ``itemised_change``: a change of several things, each of which succeeds or fails on its own.
"""
