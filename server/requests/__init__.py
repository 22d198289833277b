"""Client requests: one module for each kind of request, with the handler and the response for a failure of the whole
request.

- `produce.py`: appends batches, and responds when their acks are satisfied.
- `batch_appends.py`: appends one batch to its partition, or refuses it.
- `transactional_batches.py`: batches that wait until their partition takes part in a transaction.
- `partition_transactions.py`: partitions open transactions, and end them with markers.
- `refused_batches.py`: gaps in producers' sequences that this node's own refusals have made.
- `produce_traces.py`: times at which a batch passed each stage, for clients that request them.
- `fetch.py`, with `fetch_sessions.py`: consumers read, and wait while there are no records.
- `isolation.py`: what readers get of a log with transactions.
- `list_offsets.py`: the first and last offsets of partitions, and offsets by time.
- `delete_records.py`: advances the log start offset.
- `partition_restores.py`: the state of a log at one moment, for a backup; the steps of a restore.
- `active_producers.py`: the producers that a partition remembers, and their open transactions.
- `topics.py`, with `resolve_ids.py`: the controller creates, changes and deletes topics, each by its id.
- `metadata_queries.py`: brokers, topics, configurations, reassignments and producer names from the metadata.
- `cluster_watches.py`: notifies clients that watch the cluster of changes in it.
- `linearizable_reads.py`: makes sure that the metadata are no older than the request.
- `metadata_staleness.py`: the age of the metadata, and refusals where an operator limits it.
- `read_your_writes.py`: responses that wait until this node's image contains a change.
- `log_dirs.py`: sizes of the replicas on this node's disk, page by page.
- `producer_identities.py`: producers obtain an identity, or claim a named one.
- `elections.py`: elections that clients request, forwarded to the leaders of the partitions.
- `quorum_requests.py`: describes the metadata quorum.
- `forwarding.py`: how a request is packed for the controller, and how its response is unpacked.
- `cluster_changes.py`: removal of nodes and changes of the metadata voters, decided by the controller.
- `acl_requests.py`: ACLs.
- `metadata_changes.py`: code shared by the requests about ACLs, credentials and quotas.
- `credential_requests.py`: users with passwords, and revocations.
- `quota_requests.py`: quotas of principals.
- `node_settings.py`: settings of nodes that are changed at run time.
- `partition_errors.py`: errors for partitions without a replica on this node.
- `error_responses.py`: the failed response for each type of request.

Requests about consumer groups are in `groups/group_requests.py`; `replicas/leader_elections.py` carries elections out.

May import: all packages above it, from `hosting` to `replicas`, and `transactions`.
"""
