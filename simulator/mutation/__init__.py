"""Planted faults: patches of the shipped source, and the checks that must detect each.

May import: `seeds`.

- ``mutants/``: one file per fault: the patch, its effect, and the checks that must detect it.
- ``mutant``: reads such a file.
- ``compiled_copy``: makes copies of the packages run compiled.
- ``checks``: runs one check on patched packages.
"""
