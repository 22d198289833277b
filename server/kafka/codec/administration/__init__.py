"""Kafka's messages for administrators: who leads and where replicas are, disks, rules, users, quotas.

Written by the same tool as those of the room around it, which has what they are made of. Imports nothing else.
"""
