"""Changes that an operator makes on the page, and previews of them.

May import: what ``console`` may. Endpoints that change something exist only with ``--allow-changes``.

- ``reset_plan``: the new offsets of a consumer group, partition by partition.
- ``requests``: limits and errors of requests for changes.
- ``endpoints``: plans, settings of topics, moves, and records that are sent by hand.
- ``administration``: creation and deletion of topics, ACLs and users; aborts of transactions.
"""
