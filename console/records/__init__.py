"""Records on the page: search, follow, display and download.

May import: what ``console`` may.

- ``conditions``: the grammar of filters, and the rows of a table that match. No user input is evaluated.
- ``shown``: bytes as a page shows them: exact, truncated, never markup.
- ``reading``: polls that report unreadable batches, and continue after them.
- ``search``: reads a range of a topic and reports for every partition what was searched and what was not.
- ``follow``: new records, with a limit of rows per second, and the number of those left out.
- ``download``: search results as a file.
- ``endpoints``: both as streams of JSON lines, which end when the page disconnects.
"""
