"""The shipped clients in virtual time: their event loop, their connections, and their workloads.

May import: `checkers`, `models`, `simulator`.

- ``virtual_loop``: an asyncio event loop in the simulation's time.
- ``node_door``: the node's shipped gRPC services, on such a loop, without gRPC.
- ``client_link``: the replacement of a gRPC channel: one connection that delays, stalls, breaks and reopens.
- ``client_network``: the network between clients and nodes: addresses and blockages.
- ``client_host``: a client's machine: its clocks, its random source, its process that pauses and crashes.
- ``committed_values``: positions of each value in the committed logs, over all topics that ever had a name.
- ``producer_load``, ``consumer_load``, ``group_load``, ``admin_load``: workloads of clients, and checks of their
results.
- ``transaction_load``: processes with transactions, alone, as members of a consumer group, and with joined writers;
  ``transaction_outcomes``: what their transactions reported, and what the logs have of them.
- ``transaction_readers``: consumers of one isolation level; ``transaction_operator``: an operator who aborts.
- ``backup_load``, ``restore_load``: processes that take backups, and restore them.
- ``backup_place``: storage of backups: files in memory, which outlive the processes.
- ``backup_judge``, ``restore_judge``: required contents of a backup, and of a cluster restored from it.
- ``client_faults``: faults of clients, and of everything that they rely on.
"""
