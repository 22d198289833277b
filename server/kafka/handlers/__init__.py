"""Handlers of Kafka's requests: each request becomes the messages of gRPC clients, and their replies its response.

- `dispatch`: which function serves which API.
- `handler`: how a request is served without a thread or a clock.
- `error_codes`: Kafka's code for each error; `topic_names`: topics by name and id.

Records:

- `produce`: Produce and InitProducerId; each batch is checked record by record.
- `fetch`: Fetch; `fetch_session`: what a connection remembers between fetches (KIP-227).
- `fetched_partition`: one partition in the answer to a fetch; `leader_hints`: the leader beside an error (KIP-951).
- `offsets`: ListOffsets; `epochs`: OffsetForLeaderEpoch.
- `transaction_views`: DescribeProducers, DescribeTransactions, ListTransactions.
- `transactions`: InitProducerId with a transactional id, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, TxnOffsetCommit.

Consumer groups:

- `memberships`: classic groups: FindCoordinator, JoinGroup, SyncGroup, Heartbeat and LeaveGroup.
- `consumer_groups`: groups whose coordinator assigns (KIP-848).
- `commits`: OffsetCommit, OffsetFetch and OffsetDelete.
- `groups`: ListGroups, DescribeGroups and DeleteGroups.

The cluster:

- `cluster`: Metadata and DescribeCluster; `topic_pages`: DescribeTopicPartitions (KIP-966).
- `topics`: CreateTopics, DeleteTopics, CreatePartitions and DeleteRecords.
- `configs/`: configurations of topics and nodes.
- `placement`: ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments.
- `administration`: DescribeQuorum and DescribeLogDirs.

Access:

- `sign_in`: SaslHandshake and SaslAuthenticate.
- `acls`, `users`, `quotas`: ACLs, users with a password, and quotas, described and changed.
- `single_changes`: changes that nodes make together, and that Kafka's clients want one by one.
- `allowed_operations`: what a client may do to groups and the cluster, as sets of bits (KIP-430).

May import: `codec`, `v1` and each other.
"""
