"""Faults on real node processes under load.

May import: `checkers`.

Scenarios:

- ``scenarios``: a steady phase, one fault, recovery, in rounds; then the verdict.
- ``scenario_run``: what all scenarios share: a seed, a cluster, a verdict.
- ``scenario_cluster``: the cluster of a scenario, plain or secured for many users.
- ``steady``: no fault at all, under a share of what the cluster can take.
- ``exactly_once``: numbered records by several producers while leaders are hurt.
- ``retention_kills``, ``compaction_rounds``: nodes are killed while logs lose their beginning, or are compacted.
- ``damage_rounds``: bits flip in a node's data file, and the file is cut; ``page_map``: what each byte of it means.
- ``group_rounds``: consumer groups through everything that happens to their members and to nodes.

Faults, load and what is measured:

- ``nemesis``: hurts node processes and mends them; ``link_proxy``: cuts real links.
- ``workload``: writers of unique values, and readers, all recorded.
- ``once_writers``: writers of numbered records, ``kafka_writer``: one by Kafka's client; ``once_checker``: reads them.
- ``ballast``: load in a process of its own.
- ``leaderships``: who leads, before and after.
- ``replica_logs``: what is on the disks of replicas: logs that must agree, and terms.
- ``watchdog``: notices when the machine itself stands still.
- ``report``: what came of a run.

Members of consumer groups, each a process:

- ``member_plan``: what a member is to be; ``group_member``: the member itself; ``kafka_member``: one by Kafka's client.
- ``member_log``: what it writes down; ``member_processes``: the processes.
- ``member_history``: what their files come to, for the checkers; ``group_figures``: the same in numbers.
"""
