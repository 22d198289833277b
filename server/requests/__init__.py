"""One module for each kind of client request: who serves it, and its answer when it fails as a whole.

- `produce.py`: batches are appended, and answered when they have what their acks ask for.
- `produce_traces.py`: when a batch was where, told to who asks for it.
- `fetch.py`, with `fetch_sessions.py`: consumers read, and wait where there is nothing yet.
- `list_offsets.py`: where partitions begin, end and pass a time.
- `delete_records.py`: the log start moves up.
- `partition_restores.py`: what a log is at one moment, for a backup; the steps of a restore.
- `topics.py`, with `resolve_ids.py`: topics are created, changed and deleted by the controller, each by its id.
- `metadata_queries.py`: what the metadata say: brokers, topics, configurations, moves, producer names.
- `cluster_watches.py`: who watches the cluster is told what changes in it.
- `linearizable_reads.py`: makes sure that the metadata are no older than a question.
- `metadata_staleness.py`: how old the metadata may be, and refusals where an operator limits that age.
- `read_your_writes.py`: answers that wait until this node's image shows a change.
- `log_dirs.py`: what replicas take on this node's disk, page by page.
- `producer_identities.py`: producers get an identity, or claim a named one.
- `elections.py`: elections that clients request, passed on to the leaders of the partitions.
- `quorum_requests.py`: the metadata quorum is described.
- `forwarding.py`: how a request is packed for the controller, and where its answer is.
- `cluster_changes.py`: nodes leave, and others vote on the metadata, as the controller decides.
- `acl_requests.py`: rules of who may do what.
- `metadata_changes.py`: what the requests about ACLs, credentials and quotas share.
- `credential_requests.py`: users who sign in by password, and revocations.
- `quota_requests.py`: how much principals may do.
- `partition_errors.py`: the error for a partition that is elsewhere, or nowhere.
- `error_responses.py`: the failed response of each kind of request, by its type.

Requests about consumer groups are in `coordinator/group_requests.py`, elections in `broker/leader_elections.py`.

May import: all rooms above it, from `hosting` to `broker`.
"""
