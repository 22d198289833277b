"""The command line ``quorumlog``: commands for clients, nodes and chaos tests under one name.

Modules here import only typer and the standard library at the top; what a command needs (gRPC, Arrow, rich, LMDB) it
imports when it runs, so that a client command starts fast. ``tests/test_imports.py`` enforces that.

The program:

- ``entry``: handles Ctrl-C before the commands are imported; ``main``: the global options.
- ``tree``: the table of commands, and their import when they are used; ``version``: prints the version.
- ``boundary``: turns every failure into one line on stderr and an exit status.
- ``options``: options that several commands share; ``times``: times and durations as typed.
- ``rendering``: prints results as JSON or tables; ``progress``: progress of long operations.
- ``confirmation``: confirmation of destructive commands; ``suggestions``: the closest existing name for a mistyped one.

Commands on topics and groups:

- ``topics``: creates, lists and describes topics; ``topic_text``: in the format of kafka-topics.
- ``topic_changes``, ``delete_records``, ``topic_offsets``: the other commands below ``topics``.
- ``groups``: consumer groups; ``group_views``: ``groups describe``.
- ``group_offsets``: resets and deletes committed offsets; ``reset_targets``: targets of a reset.
- ``producers``: names of producers.
- ``transactions``: lists, describes and aborts transactions.
- ``mirror``: copies a Kafka cluster.

Commands on the cluster:

- ``cluster``: local clusters; ``health``: describes a cluster and its health.
- ``nodes``, ``partitions``, ``leaders``, ``quorum``: nodes, replicas, leaders, and the metadata quorum.
- ``node``: runs one node; ``log``: inspects the disk of a stopped one.
- ``console``: the web console; ``playground``: the cluster behind ``console --playground``.
- ``chaos``: fault injection into real processes.

May import: everything below, inside functions.
"""
