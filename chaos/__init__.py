"""Faults and verdicts: on a simulated cluster in virtual time, and on real node processes.

- ``simulate``: ``python -m quorumlog.chaos.simulate`` runs seeds, or replays one.
- ``mutate``: ``python -m quorumlog.chaos.mutate`` plants faults into the source and shows which checks notice them.

``quorumlog chaos run`` runs the scenarios on real processes.

- ``checkers``: histories of what clients did, and verdicts on them.
- ``models``: what committed logs decide, as plain models.
- ``simulator``: virtual time, network, disks, nodes, clients, and invariants.
- ``consumer_groups``: members of consumer groups in that world; ``clients``: the SDK's own clients in it.
- ``seeds``: what a seed decides, how it is run, and how a failure is cut down.
- ``processes``: scenarios on real node processes.
- ``mutation``: planted faults.
- ``hostile``: clients that mean no good, against three real nodes.

May import: everything below. Each room says which others it may use.
"""
