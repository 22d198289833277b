"""What the clients run on: one event loop in the background, and waiting that can be interrupted.

May import: `sdk` itself.

- ``event_loop``: the background thread on which the cores of all synchronous clients of a process run.
- ``completion``: something that ends once on that loop, and that threads and tasks wait for.
- ``interruptible_event``: what a thread waits at for another one; it may be interrupted at any moment.
- ``caller_lock``: locks of the application's own thread, which a signal handler may interrupt anywhere.
- ``client_runtime``: time, chance, channels to nodes and threads, which a simulation hands in instead.
- ``security``: how nodes are reached: with or without TLS, by certificate, password or token.
- ``tls_files``: certificates, keys and authorities, read again when they have changed.
- ``renewed_channel``: a channel whose connections are made anew with them.
- ``passwords``: what of a password is hashed, however it was typed.
- ``scram_client``: sign-in by password, without I/O.
- ``bearer_identity``: sign-in by token, from a file or whoever has it.
- ``backoff``: how long to wait before trying again.
- ``other_protocol``: recognises what serves at an address where no node answers: Kafka's port, or TLS on one side only.
- ``properties_file``: files of properties in the format of Kafka's tools.
- ``fork``: notices a fork, so that clients refuse to work in the child instead of hanging.
"""
