"""Kafka's wire protocol, for Kafka's own clients.

- `listener`: the port: the only module that uses a socket.
- `connection`: one connection as a state machine; `sign_in_state`: how far its authentication is.
- `oauthbearer_message`: the message of a client that authenticates by token (RFC 7628).
- `version_table`: which APIs a node speaks in which versions.
- `memory_budget`: a limit shared by all connections for the bytes that they hold in memory.
- `client`: a client whose requests go through a node.
- `cluster_view`: a node's view of its cluster, as far as each client may see it.
- `codec/`: the messages, as bytes and objects.
- `handlers/`: what each request means here.

May import: `metadata`, `transport`, `server` itself.
"""
