"""Fault injection into real node processes under load.

May import: `checkers`.

Scenarios:

- ``scenarios``: a steady phase, one fault, recovery, in rounds; then the verdict.
- ``scenario_run``: common parts of all scenarios: a seed, a cluster, a verdict.
- ``scenario_cluster``: the cluster of a scenario, plain or secured for many users.
- ``steady``: no fault, under a share of the peak load.
- ``exactly_once``: numbered records of several producers, with faults at leaders.
- ``retention_kills``, ``compaction_rounds``: nodes are killed during retention or compaction.
- ``damage_rounds``: bits flip in a node's data file, and it is truncated; ``page_map``: meaning of each of its bytes.
- ``group_rounds``: consumer groups with faults of members and nodes.
- ``transfer_rounds``: transfers in transactions with faults of workers and nodes.

Faults, load and measurements:

- ``nemesis``: injects and ends faults of node processes; ``link_proxy``: cuts real links.
- ``workload``: writers of unique values, and readers, all recorded.
- ``once_writers``: writers of numbered records, ``kafka_writer``: one with Kafka's client; ``once_checker``: reads
them.
- ``ballast``: load in a process of its own.
- ``leaderships``: leaders before and after a fault.
- ``replica_logs``: logs of replicas on disk, which must agree, and their terms.
- ``watchdog``: detects that the machine itself stalls.
- ``report``: results of a run.

Members of consumer groups, each a process:

- ``member_plan``: configuration of a member; ``group_member``: the member; ``kafka_member``: one with Kafka's client.
- ``member_log``: its log of events; ``member_processes``: the processes.
- ``member_history``: evaluates their logs for the checkers; ``group_figures``: the same in numbers.

Transfers in transactions:

- ``transfer_log``: configuration of a worker, and its log; ``kafka_worker``: a worker with Kafka's client.
- ``worker_processes``: the worker processes.
- ``ledger_readers``: readers of committed records with either client; ``transfer_figures``: results in numbers.
"""
