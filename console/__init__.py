"""The web console: a page that draws a running cluster, in a process of its own that is a client like any other.

May import: ``quorumlog.sdk`` and ``quorumlog.v1``. Nothing below knows of it; ``quorumlog console`` starts it. It needs
the extra ``quorumlog[console]``.

In the order in which news of the cluster reach a page:

- ``poller``: asks the cluster, at a pace of its own whatever the number of pages, and only while a page is open.
- ``node_watches``: what nodes tell by themselves, each by a watch of its own.
- ``node_states``: whether each node is up, does not answer, or is down.
- ``image``: what is known of nodes, topics and partitions; older news never replaces newer news.
- ``progress``: where partitions end, how fast they grow, how far consumer groups are.
- ``shared_state``: all of that as one flat map with a version, from which a page gets what has changed since it looked.
- ``page_stream``: the stream of Server-Sent Events of one page.
- ``access``: who may ask: token and cookie, ``Host``, ``Origin``; what every answer says to the browser.
- ``assets``: the files of ``static/``, and the page itself.
- ``application``: these joined into an ASGI application.
- ``process``: the application served on a socket, until a signal.
- ``records/``: records found, followed and shown.
- ``changes/``: what an operator changes from the page, if that is allowed.
- ``playground/``: for a cluster of its own, which the page may do things to.

``static/`` is the page: ES modules without a build step, ``static/vendor/`` the libraries (``tools/vendor.py``).
"""
