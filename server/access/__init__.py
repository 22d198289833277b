"""Authentication, authorization and quotas of clients.

Authentication:

- `scram_sign_in`: authentication by password in two calls (SCRAM).
- `token_sign_in`: authentication by bearer token in one call (OAUTHBEARER).
- `jwt_verifier`: verifies a JSON web token; `key_set`, `watched_keys`: the public keys of its issuer, from a file that
  is read again when it changes. These three need the extra `oauth`.
- `sign_in_rules`: rules shared by all kinds of authentication; `failed_sign_ins`: delays after failures.
- `sessions`: sessions of authenticated clients at this node, with their expiry.
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
