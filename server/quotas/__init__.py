"""How much principals do: token buckets by the quotas that the metadata hold, and who waits because of them.

May import: `metadata`, `server` itself.

- `token_bucket`: one limit per second of one principal; it takes debt.
- `quota_buckets`: the buckets of all principals, and their bounds.
- `throttle`: has requests wait whose principal is over a quota.
- `mutation_quota`: refuses changes of partitions to whoever is over a quota, at the controller.
"""
