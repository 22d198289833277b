"""Clients of every peer, one module for each library, all with the same calls: ``python -m bench.peers.clients``.

They import nothing of the log store but ``bench.figures`` and, for our own, its SDK: they run in an environment with
the peers' libraries alone. Every module has some of these calls, all of which take a ``target.Target``:

- ``create(target)``: makes the topic, three replicas of each partition; returns once each has a leader.
- ``leader(target)``: where partition 0 is led, as the peer names its servers.
- ``records(target)``: how many records the topic has been given.
- ``produce(target, size, count)``: as fast as it goes, until every record is acknowledged.
- ``consume(target, size, count)``: from the start.
- ``singly(target, size, count)``: one record at a time, each waited for.
- ``steady(target, size)``: a record every few milliseconds while a server is killed.

The modules: ``ours``, ``confluent`` and ``kafka_python`` (Apache Kafka), ``nats`` (JetStream), ``rstream`` (RabbitMQ
streams). ``target`` is what a client is pointed at, ``kill_watch`` what it notices of a killed server.
"""
