"""gRPC: listeners and services for clients, streams between nodes, their codec.

The listeners:

- `grpc_server`: the server of a node: clients, peers, health and reflection on one port.
- `channel_options`: gRPC settings that every channel and server share.
- `credentials`: TLS for listeners and for connections to peers; `tls_contexts`: TLS without gRPC.
- `caller_identity`, `principals`: who calls, from where, and for which principal.
- `session_gate`: requires a session before anything of a request is read, where clients authenticate by password.
- `certificate_ends`: ends calls with the certificate that they were made with.
- `failed_handshakes`: what is logged of connections that came to nothing.
- `guarded_reflection`: reflection, for clients that may describe the cluster.
- `supervision`: background tasks whose failure is the node's failure.

Services for clients:

- `data_plane_service`: streams of produce and fetch requests, and the unary calls beside them.
- `groups_service`, `admin_service`, `sign_in_service`: consumer groups, administration, authentication.
- `request_stream`, `unary_calls`: how streams and single calls are served.
- `client_requests`: the requests that the node works on, each bounded and answered once.
- `request_times`: times and errors of requests, for metrics.
- `rpc_errors`: errors of whole calls.

Between nodes:

- `peer_service`: what nodes serve to nodes: Identify, and the streams.
- `peer_links`: the links to every peer; `peer_session`: the streams of one direction.
- `peer_codec`: frames to bytes and back.
- `refused_peers`: what is logged of nodes that were refused.
- `disk_loss_report`: asks another node to give up a disk of this one, before this node belongs to the cluster again.

May import: `server` itself, `certificates`, and the modules `hosting.sealing` and `partition.batch_admission`.
"""
