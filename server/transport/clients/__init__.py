"""Serves clients over gRPC.

- `data_plane_service`: streams of produce and fetch requests, and the unary calls beside them.
- `groups_service`, `transactions_service`: consumer groups, transactions.
- `admin_service`, `sign_in_service`: administration, authentication.
- `request_stream`, `unary_calls`: how streams and single calls are served.
- `client_requests`: the requests that the node works on, each bounded and answered once.
- `request_times`: times and errors of requests, for metrics.
- `session_gate`: requires a session before a request is read, where clients authenticate by password.
- `guarded_reflection`: reflection, for clients that may describe the cluster.
"""
