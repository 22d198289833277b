"""The log store beside other log stores on the same machine, in one run: ``python -m bench peers``.

``command`` is the way in. ``turns`` lets every peer have its turn, round by round; ``readings`` makes the table. A
module named after a store (``ours``, ``kafka``, ``nats``, ``rabbitmq``) starts its three servers and names its sides:
the ways of using it that are compared. The modules in ``clients`` run in processes of their own, with the Python of
``build/peers/venv``: nothing here but them imports a peer's client. Jars come by ``artifacts``.
``spark_formats`` compares Spark's own format for Kafka with ours.

- ``peer``: what a peer is: servers, and the sides that are compared.
- ``server_processes``, ``client_process``: the processes of servers and clients.
- ``loads``: what every peer is measured at.

May import: `bench`, and everything below.
"""
