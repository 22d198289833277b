"""Messages about consumer groups, written by ``tools/kafka_codec.py``. Imports the codec's primitives alone."""
