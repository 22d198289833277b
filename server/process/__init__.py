"""Runs a node as a process.

- `runtime`: puts a node process together, runs it, and takes it apart again.
- `workers`: several nodes of one machine, as processes forked by a parent.
- `driver`: gathers events, steps the node, and carries out its effects.
- `listeners`: a gRPC server for each kind of listener; `peer_listeners`: what peers are served there.
- `job_thread`: the thread for work that would delay the node's steps.
- `os_limits`: limits of the operating system that the process raises as it starts.
- `metrics_page`: the pages for metrics, liveness and readiness; `http_server`: the HTTP servers under them.
- `audit_log`: the audit log, written by its own thread.
- `start_log`: messages before the log is open, and of a node that does not start.
- `service_manager`: notifies a service manager that the node serves or stops.

May import: all packages.
"""
