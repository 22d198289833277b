"""Consumer groups: the state machine of a coordinator and what its leader decides (KIP-848).

May import: `hosting`, `metadata`.
"""
