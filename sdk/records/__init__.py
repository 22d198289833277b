"""Records and batches as bytes and Arrow: encoding, decoding, hashing of keys, partitioning.

May import: `sdk` itself.
"""
