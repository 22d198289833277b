"""The shipped clients on virtual time: their event loop, their connections, and what they are made to do.

May import: `checkers`, `models`, `simulator`.

- ``virtual_loop``: an asyncio event loop whose time is the simulation's.
- ``node_door``: the node's shipped gRPC services, on such a loop, without gRPC.
- ``client_link``: what stands for a gRPC channel: one connection that delays, stalls, breaks and opens again.
- ``client_network``: what lies between clients and nodes: addresses, and what blocks the way.
- ``client_host``: a client's machine: its clocks, its chance, its process that pauses and dies.
- ``committed_values``: where each value is in the committed logs, over all topics that ever had a name.
- ``producer_load``, ``consumer_load``, ``group_load``, ``admin_load``: what clients do, and the checks of what they are
  told.
- ``backup_load``, ``restore_load``: processes that take backups, and restore them.
- ``backup_place``: where backups lie: files in memory, which outlive the processes.
- ``backup_judge``, ``restore_judge``: what a backup, and what a cluster restored from it, must hold.
- ``client_faults``: what happens to clients, and to what they rely on.
"""
