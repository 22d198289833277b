"""Clients that mean no good: valid and nearly valid requests with right checksums, to every RPC of three real nodes.

A node may refuse whatever comes; it must not end, nor answer with an internal error, nor leave the cluster unable to
work. What a request is made of comes from the descriptors of the services, so that a new RPC is tried by itself.

- `boundaries`: the values at which fields break, from a field's descriptor.
- `known_ids`: what a stranger learns of a cluster: ids, epochs, names, leaders.
- `caller`: as whom they call.
- `access`: how they get to the nodes.
- `fixture`: the cluster that knows them so, and what none of them may be told.
- `services`: the methods that clients can call.
- `batches`: record batches with right checksums and wrong headers or payloads.
- `old_clients`: batches as old and faulty Kafka clients write them, and how every reader treats the accepted ones.
- `requests`: requests of any type, valid but for a field or two.
- `wire`: calls and streams to the nodes, noted as they leave.
- `record`: what was sent last, and the file that brings it back.
- `sequences`: sequences of requests: a producer, a member, a fetch session that go well until they do not.
- `kafka_clients`: frames on the port for Kafka's clients, whole, cut, altered and random; `kafka_requests` makes them
  from the codec's messages, `kafka_batches` what they write.
- `strangers`: what somebody who is no node of the cluster says to the services between nodes.
- `worker`: a process full of such clients.
- `verdict`: whether the nodes are those of the start, and the cluster works.
- `fuzzer`: the whole run.
- `replay`: a recorded run once more, and the fewest requests of it that still do harm.

May import: no other room of `chaos`.
"""
