"""Faults on real node processes under load: scenarios, workloads, link proxies, reports."""
