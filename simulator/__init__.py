"""Deterministic simulation: the shipped node and clients in virtual time, invariants, and planted faults.

Not part of a wheel: only a checkout contains it.

- ``simulate``: ``python -m quorumlog.simulator.simulate`` runs seeds, or replays one.
- ``mutate``: ``python -m quorumlog.simulator.mutate`` plants faults into the source and lists the checks that detect
them.

- `world/`: virtual time, network, disks, nodes, clients, and the invariants.
- `models/`: plain models of the decisions in committed logs.
- `consumer_groups/`: members of consumer groups in that world; `clients/`: the SDK's own clients in it.
- `seeds/`: the plan of a seed, its run, and the reduction of a failure.
- `mutation/`: planted faults.

May import: everything below `chaos`, and `chaos.checkers`.
"""
