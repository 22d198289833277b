"""Throughput and latency of a three-node cluster beside the bare path: ``python -m bench``.

Measurements and their results:

- ``measurements``: each figure of the cluster beside the same load on the bare path.
- ``job``: one measurement in its own process; ``figures``: what one run of it gives.
- ``latency_load``: a steady load of single records.
- ``sdk_client``: loads through the SDK; ``raw_client``: loads below it.
- ``process_cost``: what a process costs the machine.
- ``report``: medians and ratios; ``target_table``: figures with targets.
- ``options``, ``printing``: options and output that the benchmarks share.
- ``compare``: this checkout beside other code.

The bare path, the least that a replicated log must do:

- ``bare_path``: three nodes of it; ``bare_node``: one; ``bare_client``: loads it.

The core and the disk:

- ``rounds``: a round of replication in Python; ``core_trio``, ``node_trio``: the core and the node under it.
- ``instructions``: the instructions of these rounds, for changes too small for a clock.
- ``messages``: processor time of a message between two nodes, by transport.
- ``storage_commit``: commits beside a bare LMDB.
- ``steady_state``: appends under retention; ``steady_cluster``: the same on three nodes; ``steady_figures``: results.
- ``compaction``: the speed of a pass; ``lookups``: offsets and start of a node with a long partition.

Clusters:

- ``raft_groups``: many idle partitions.
- ``consumer_heartbeats``: many group members; ``heartbeat_clients``: these in one process.
- ``coordinator_failover``: the coordinator of a large group is killed.
- ``rebalance``: a member joins, leaves or dies; ``consumers``: many consumers in one process; ``delivery_gaps``: how
  long partitions are not read.
- ``transactions``: costs of transactions beside Apache Kafka's; ``transaction_load``: one load of it.
- ``drained_node``, ``lost_disk``: a node is drained, a disk is lost.
- ``scrape``, ``console``, ``tls``: costs of metrics, of an open console, of TLS and ACLs.
- ``workers``: several nodes on each machine; ``worker_load``: one client of it.
- ``tuning``: what settings of clients gain; ``client_path``: processor time of a record in a producer's process.

Spark:

- ``spark``: reading and writing beside Spark's maximum; ``spark_rates``, ``spark_latency``: the measurements.
- ``spark_jobs``: the timed queries; ``spark_feeds``: sources and sinks with nothing behind them.
- ``arrow_feed``: a bare gRPC server of Arrow bytes.

``kafka_port`` measures the port for Kafka's clients, ``peers`` other log stores.

May import: everything.
"""
