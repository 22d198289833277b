"""What an operator changes from the page, and what it would do.

May import: what ``console`` may. What changes something is there only with ``--allow-changes``.

- ``reset_plan``: where a consumer group would go on, partition by partition.
- ``requests``: what a request may carry, and how it is refused.
- ``endpoints``: the plan, and settings of topics; their execution, and records that are sent by hand.
- ``administration``: topics created and deleted, ACLs and users.
"""
