"""Planted faults: patches of the shipped source, and the checks that must notice each."""
