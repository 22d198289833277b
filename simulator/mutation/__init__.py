"""Planted faults: patches of the shipped source, and the checks that must notice each.

May import: `seeds`.

- ``mutants/``: one file per fault: the patch, what it would do, and who must notice.
- ``mutant``: reads such a file.
- ``compiled_copy``: makes copies of the packages run compiled.
- ``checks``: runs one check on patched packages.
"""
