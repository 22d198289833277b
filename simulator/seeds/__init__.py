"""What a seed decides and how it is run.

May import: `checkers`, `models`, `simulator`, `clients`.

- ``plan``: every parameter of the cluster, its load and its faults.
- ``plan_groups``: the same for consumer groups.
- ``fault_schedule``: when each fault strikes, and of what kind.
- ``faults``: the kinds of fault: what each does, and how it ends.
- ``simulation``: runs one seed: forms, loads and hurts a cluster, heals it, and judges it.
- ``plan_clients``, ``client_simulation``: the same for seeds with the shipped clients.
- ``plan_backups``, ``restore_simulation``: backups that such a seed takes, and their restore into a fresh cluster.
- ``story``: which of these a seed tells.
- ``reduction``: cuts a failing seed down to the faults that matter.
- ``transcript``: the last moments of a seed, for people.
- ``summary``: what many seeds came to, together.
"""
