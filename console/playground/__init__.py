"""A cluster to play with: nodes that may be killed from the page, life in it, and a check that nothing was lost.

May import: what `console` may. The cluster itself is handed in by whoever started it (``quorumlog console
--playground``): for any other cluster these controls do not exist.

- ``workload``: producers and consumer groups at a pace that is chosen, and a ledger of what was acknowledged.
- ``controls``: what the page may do to the nodes, and when.
"""
