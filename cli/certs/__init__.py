"""The commands of certificates."""
