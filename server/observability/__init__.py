"""Metrics and logs.

- `metrics`: counters of a process; `principal_totals`: bounded counts by principal.
- `metric_catalogue`: every metric with its name, labels and meaning.
- `log_levels`: levels of loggers, which can be changed at run time.
- `logging_setup`: structured logs on stderr.

May import: no other package.
"""
