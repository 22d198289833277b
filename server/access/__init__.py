"""Who clients are, what they may do, and how much: authentication, authorization and quotas.

Authentication:

- `scram_sign_in`: two calls in which a client proves that it knows a password.
- `token_sign_in`: one call with a bearer token (OAUTHBEARER).
- `jwt_verifier`: verifies a JSON web token; `key_set`, `watched_keys`: the public keys of its issuer, from a file that
  is read again when it changes. These three need the extra `oauth`.
- `sign_in_rules`: rules that every way to sign in follows; `failed_sign_ins`: delays after failures.
- `sessions`: the clients that are signed in at this node, and until when.
- `request_authentication`: checks that the session of a request is valid and its certificate not revoked.

Authorization:

- `permissions`: what each RPC requires, one row each.
- `authorizer`: decides by super users and rules, and caches decisions until the rules change.
- `request_denial`: requests that are denied as a whole; `partial_denial`: requests of which some items are denied.
- `access_errors`: the errors of denied requests.
- `audit`: records denials and changes; `audit_text`: describes a change for the audit log.

Quotas:

- `token_bucket`: one rate limit of one principal; `quota_buckets`: the buckets of all principals, with a bound.
- `throttle`: delays requests of principals that exceed a quota.
- `mutation_quota`: rejects changes of partitions beyond a quota, at the controller.

May import: `step`, `config`, `observability`, `metadata`.
"""
