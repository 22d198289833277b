"""Who may do what: decisions on the requests of clients, by this node's own metadata, and what is told of them.

May import: `metadata`, `server` itself.

- `permissions`: what each RPC asks for, one row each.
- `authorizer`: decides by super users and rules, and remembers what it has decided until the rules change.
- `access_errors`: what clients are told that may not.
- `request_denial`: requests that are refused as a whole.
- `partial_denial`: changes of several things: those that are refused are taken out, and put into the answer.
- `audit`: who was refused, and who has changed what.
- `audit_text`: what a change is about, in words for the audit log.
"""
