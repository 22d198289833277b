"""Who clients are: sign-in by password and by token, the sessions that come of it, and credentials that count no more.

May import: `metadata`, `authorization`, `server` itself.

- `scram_sign_in`: two calls in which a client proves who it is.
- `token_sign_in`: one call with a token of somebody whom the operator trusts.
- `sign_in_rules`: what every way to sign in goes by.
- `failed_sign_ins`: who has to wait after wrong passwords and tokens.
- `sessions`: who has signed in at this node, and until when.
- `request_authentication`: whether a request is served: its session goes on, its certificate is not revoked.
"""
