"""X.509 certificates as files: what they say, whether a node can use them, and how new ones are made.

- `names`: how a certificate says which node or user it is of.
- `x509`: from when until when a certificate is valid. All that a node must know of one, without a library for it.
- `pairs`: a certificate, its key and the authorities that are trusted, read from files, checked, and read again.
- `issuing`: makes authorities and certificates. Needs the extra `certs`.
- `inspection`: what a certificate says, and what is wrong with it. Needs the extra `certs`.

May import: shared.
"""
