"""The decisions of a seed, and its run.

May import: `checkers`, `models`, `simulator`, `clients`.

- ``plan``: every parameter of the cluster, its load and its faults.
- ``plan_groups``: the same for consumer groups.
- ``fault_schedule``: time and kind of each fault.
- ``faults``: the kinds of fault: their effect and end.
- ``simulation``: runs one seed: forms and loads a cluster, injects faults, heals it, and judges it.
- ``transaction_simulation``: the same with transactions.
- ``plan_clients``, ``client_simulation``: the same for seeds with the shipped clients.
- ``plan_backups``, ``restore_simulation``: backups of such a seed, and their restoration into a fresh cluster.
- ``story``: the kinds of seeds.
- ``reduction``: reduces a failing seed to the relevant faults.
- ``transcript``: the last moments of a seed, for people.
- ``summary``: totals of many seeds.
"""
