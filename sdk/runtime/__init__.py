"""Infrastructure of the clients: a background event loop, interruptible waiting, security.

May import: `sdk` itself.

- ``event_loop``: the background thread for the cores of all synchronous clients of a process.
- ``completion``: an outcome on that loop that threads and tasks wait for.
- ``interruptible_event``: an event between threads whose wait may be interrupted at any moment.
- ``caller_lock``: locks of the application's own thread, which a signal handler may interrupt anywhere.
- ``client_runtime``: time, randomness, channels to nodes and threads, which a simulation replaces.
- ``security``: options for TLS and for authentication by certificate, password or token.
- ``tls_files``: certificates, keys and authorities, read again when they have changed.
- ``renewed_channel``: a channel that reconnects with changed files.
- ``passwords``: normalisation of passwords before hashing.
- ``scram_client``: authentication by password, without I/O.
- ``bearer_identity``: authentication by token, from a file or a provider.
- ``backoff``: delays between attempts.
- ``other_protocol``: recognises another protocol at an address where no node answers: Kafka's, or TLS on one side only.
- ``properties_file``: files of properties in the format of Kafka's tools.
- ``fork``: detects a fork, so that clients refuse to work in the child instead of hanging.
"""
