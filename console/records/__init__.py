"""Records on the page: found, followed, shown.

May import: what ``console`` may.

- ``conditions``: the grammar of filters, and which rows of a table fit. Nothing that a user types is evaluated.
- ``shown``: bytes as a page shows them: exact, cut, never markup.
- ``reading``: polls that name batches which cannot be read, and continue after them.
- ``search``: reads a stretch of a topic and says of every partition what was searched and what was not.
- ``follow``: what is being written, so many rows a second, and how many were left out.
- ``download``: what was found, as a file.
- ``endpoints``: both as streams of lines of JSON, which end when the page goes.
"""
