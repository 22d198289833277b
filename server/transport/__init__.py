"""gRPC: listeners and services for clients, streams between nodes, their codec.

- `grpc_server`: the server of a node: clients, peers, health and reflection on one port.
- `channel_options`: gRPC settings that every channel and server share.
- `credentials`: TLS for listeners and for connections to peers; `tls_contexts`: TLS without gRPC.
- `caller_identity`, `principals`: the caller, its address and its principal.
- `certificate_ends`: ends calls when the certificate that they were made with expires.
- `failed_handshakes`: logs connections that failed before a call.
- `rpc_errors`: errors of whole calls.
- `supervision`: background tasks whose failure is the node's failure.
- `clients/`: the services for clients; `peers/`: the links between nodes.

May import: `step`, `config`, `observability`, `certificates`, and the modules `hosting.sealing` and
`partition.batch_admission`.
"""
