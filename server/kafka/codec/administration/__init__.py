"""Kafka's messages for administrators: leaders and locations of replicas, disks, rules, users, quotas.

Written by the same tool as those of the package around it, which has their primitives. Imports nothing else.
"""
