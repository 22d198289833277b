"""A demo cluster: nodes that may be killed from the page, live traffic, and a check that no record was lost.

May import: what `console` may. The cluster itself is provided by the caller (``quorumlog console --playground``): for
any other cluster these controls do not exist.

- ``workload``: producers and consumer groups at a configurable rate, and a ledger of acknowledged records.
- ``controls``: the actions that the page may take on nodes.
"""
