"""The cluster as a client sees it: connections, metadata, leaders, coordinators.

May import: `sdk` itself, `runtime`, `records`.

- ``cluster``: the connection to each node, what is known of the topics in use, and how it is kept current.
- ``connection``: one node: a channel, and its streams for producing and fetching.
- ``call_limiter``: how many unary calls one connection carries at once; others wait in order.
- ``node_session``: signed in at a node by password or token, and kept so.
- ``blocking_session``: the same for calls that block.
- ``metadata``: what a client knows of the cluster; older news never replaces newer news.
- ``leader_calls``: asks the leaders of several partitions at once.
- ``request_parts``: splits a request that names more things than one may.
- ``shared_calls``: one call for all tasks that wait for the same answer.
- ``leader_probe``: asks replicas who leads, when a leader is silent.
- ``outage_log``: what is said in the log while nodes do not serve a partition.
- ``offset_search``: what a search for offsets has found and what to ask next, without I/O.
- ``offset_lookup``: runs such a search at the leaders.
- ``coordinators``: which node coordinates which consumer group.
- ``topic_ids``: which topics names mean, looked up once before a change.
- ``itemised_change``: a change of several things, each of which succeeds or fails on its own.
"""
