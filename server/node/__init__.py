"""The node's step: one synchronous state machine, from formation to the handover at a stop.

- `node.py`: the step itself: events in, effects out.
- `resources.py`: the resources of a node that exist without a cluster, shared with its member.
- `directory_identity.py`: the owner and the id of the data directory.
- `cluster_search.py`: finds or founds the cluster of a node that does not belong to one yet.
- `formation.py`: forms a cluster, and decides whether a node belongs to one.
- `cluster_member.py`: a node inside its cluster: builds the parts below and notifies them.
- `request_pipeline.py`: the path of every client request: authenticate, throttle, authorize, audit, dispatch.
- `member_context.py`: dependencies shared by a member's services; `member_services.py`: all of these services.
- `replica_services.py`, `partition_services.py`: services for replicas and for the logs of records.
- `participant_services.py`: services for partitions that take part in transactions.
- `cluster_services.py`, `access_services.py`: services for the cluster, and for authentication, ACLs and quotas.
- `description.py`: DescribeNode.
- `metadata_events.py`: reactions of a node to changes of the metadata.
- `leader_heartbeats.py`: heartbeats and leases, and detection of a stalled storage thread.
- `metadata_member.py`: this node's replica of the metadata.
- `needed_links.py`: the nodes with which this one keeps links.
- `metadata_quorum.py`: changes the voters of the metadata quorum.
- `controller_traffic.py`: requests to the controller and to leaders, and those from other nodes.
- `append_guard.py`: decides whether the node can accept appends and confirm that it leads.
- `cluster_events.py`: events in the cluster, for the log and for metrics.
- `readings.py`: the figures of a node, its partitions and its cluster, for metrics.
- `settings_in_effect.py`: puts settings into effect that are changed at run time.
- `scrub.py`: reads everything on the disk again from time to time, in the background.
- `space_watch.py`: refuses appends when the disk is nearly full.
- `stop_handover.py`: a graceful stop.

May import: all packages above it, from `hosting` to `requests`.
"""
