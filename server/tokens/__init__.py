"""Bearer tokens (OAUTHBEARER): JSON web tokens, and the file with the keys by which they are known.

May import: shared. Needs the extra `oauth`.

- `key_set`: the public keys in a JWKS file, checked.
- `watched_keys`: such a file, read again when it has changed.
- `jwt_verifier`: reads a token, and makes sure that its issuer made it, for this cluster, and for now.
"""
