"""X.509 certificates as files: reading, checking and issuing them.

- `names`: how a certificate says which node or user it is of.
- `x509`: from when until when a certificate is valid, its serial number, whether a file of them is whole.
- `pairs`: a certificate, its key and the authorities that are trusted, read from files, checked, and read again.
- `issuing`: makes authorities and certificates.
- `inspection`: what a certificate says, and what is wrong with it.

May import: shared.
"""
