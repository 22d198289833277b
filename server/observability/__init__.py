"""Metrics and logs.

- `metrics`: what a process counts; `principal_totals`: counts by principal, with a bound.
- `metric_catalogue`: every metric with its name, labels and meaning.
- `logging_setup`: structured logs on stderr.

May import: no other room.
"""
