"""Deterministic simulation: the shipped node and clients in virtual time, invariants, and planted faults.

Not part of a wheel: only a checkout has it.

- ``simulate``: ``python -m quorumlog.simulator.simulate`` runs seeds, or replays one.
- ``mutate``: ``python -m quorumlog.simulator.mutate`` plants faults into the source and shows which checks notice them.

- `world/`: virtual time, network, disks, nodes, clients, and the invariants.
- `models/`: what committed logs decide, as plain models.
- `consumer_groups/`: members of consumer groups in that world; `clients/`: the SDK's own clients in it.
- `seeds/`: what a seed decides, how it is run, and how a failure is reduced.
- `mutation/`: planted faults.

May import: everything below `chaos`, and `chaos.checkers`.
"""
