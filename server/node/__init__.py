"""The step: one synchronous state machine that is the node, from formation to the hand-over at a stop.

- `node.py`: the step itself: events in, effects out.
- `resources.py`: what a node has from its first step on, and shares with its part in a cluster.
- `directory_identity.py`: whose data directory this is.
- `cluster_search.py`: what a node does before it belongs to a cluster.
- `formation.py`: how a cluster comes into existence, and how a node finds out whether it belongs to one.
- `cluster_member.py`: a node inside its cluster: puts the parts below together, and tells them what happens.
- `request_pipeline.py`: what every client request passes: authenticate, throttle, authorize, audit, dispatch.
- `member_context.py`: what the services of a member share; `member_services.py`: all of these services.
- `replica_services.py`, `partition_services.py`: services for replicas and for the logs of records.
- `cluster_services.py`, `access_services.py`: services for the cluster, and for authentication, ACLs and quotas.
- `description.py`: DescribeNode.
- `metadata_events.py`: what happens in a node when the metadata change.
- `leader_heartbeats.py`: heartbeats and leases, and a storage thread that stalls.
- `metadata_member.py`: this node's replica of the metadata.
- `metadata_quorum.py`: changes who votes in the metadata quorum.
- `controller_traffic.py`: requests to the controller and to leaders, and those that other nodes send here.
- `append_guard.py`: what the node can do at the moment: take appends, confirm that it leads.
- `cluster_events.py`: what happens in the cluster, for the log and for metrics.
- `readings.py`: the figures of a node, its partitions and its cluster, for metrics.
- `scrub.py`: reads everything on the disk again from time to time, in the background.
- `space_watch.py`: a disk that is nearly full.
- `stop_handover.py`: a graceful stop.

May import: all rooms above it, from `hosting` to `requests`.
"""
