"""The web console: a page that draws a running cluster, served by a process of its own that is an ordinary client.

May import: ``quorumlog.sdk`` and ``quorumlog.v1``. No package below depends on it; ``quorumlog console`` starts it. It
needs the extra ``quorumlog[console]``.

In the order in which changes of the cluster reach a page:

- ``poller``: queries the cluster at a fixed pace, whatever the number of pages, and only while a page is open.
- ``node_watches``: changes that nodes report on their own, over a watch of each node.
- ``node_states``: whether each node is up, does not answer, or is down.
- ``image``: the known nodes, topics and partitions; older news never replaces newer news.
- ``progress``: ends of partitions, their growth, and the progress of consumer groups.
- ``transactions``: transactional ids, and what open transactions hold back; polled only while a page shows them.
- ``shared_state``: all of that as one flat map with a version, from which a page gets the changes since its last look.
- ``page_stream``: the stream of Server-Sent Events of one page.
- ``access``: access control: token and cookie, ``Host``, ``Origin``, and the security headers of every response.
- ``assets``: the files of ``static/``, and the page itself.
- ``application``: these joined into an ASGI application.
- ``process``: the application served on a socket, until a signal.
- ``records/``: searching, following and showing records.
- ``changes/``: changes that an operator makes on the page, if that is allowed.
- ``playground/``: a demo cluster, whose nodes the page may kill.

``static/`` is the page: ES modules without a build step, ``static/vendor/`` the libraries (``tools/vendor.py``).
"""
