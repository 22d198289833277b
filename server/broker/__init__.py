"""This node's replicas as the metadata want them: registry, elections, moves, endings, in-sync replicas.

May import: `partition`, `coordinator`, `hosting`, `metadata`.
"""
