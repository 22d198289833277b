"""Hostile clients: valid and nearly valid requests with correct checksums, to every RPC of three real nodes.

A node may reject any request; it must not crash, answer with an internal error, or leave the cluster unable to work.
Requests are generated from the descriptors of the services, so that a new RPC is covered automatically.

- `boundaries`: boundary values of fields, from a field's descriptor.
- `known_ids`: ids, epochs, names and leaders that a client learns from a cluster.
- `caller`: the identities of hostile clients.
- `access`: addresses and credentials for the nodes.
- `fixture`: the cluster under attack, and the secrets that no client may learn.
- `services`: the methods that clients can call.
- `batches`: record batches with correct checksums and wrong headers or payloads.
- `old_clients`: batches of old and faulty Kafka clients, and the results of every reader for the accepted ones.
- `requests`: requests of any type, valid except for a field or two.
- `wire`: calls and streams to the nodes, recorded as they are sent.
- `record`: the requests sent last, and the file that allows a replay.
- `sequences`: sequences of requests: a producer, a member, a fetch session that are valid for a while.
- `kafka_clients`: frames on the port for Kafka clients, whole, truncated, altered and random; `kafka_requests` creates
  them from the codec's messages, `kafka_batches` their record batches.
- `strangers`: requests of unauthenticated clients to the services between nodes.
- `worker`: a process with many hostile clients.
- `verdict`: checks that no node was restarted, and that the cluster works.
- `fuzzer`: the whole run.
- `replay`: replays a recorded run, and finds the fewest requests that reproduce a failure.

May import: no other folder of `chaos`.
"""
