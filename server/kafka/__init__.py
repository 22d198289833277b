"""Kafka's wire protocol, for Kafka's own clients.

``codec`` has its messages as bytes and objects, ``connection`` a connection as a state machine, ``mapping`` what each
request means here, ``client`` a client whose requests go through a node. ``listener`` alone knows a
socket.
"""
