"""Configurations as Kafka's clients see and change them.

- `topic_configs`: DescribeConfigs, AlterConfigs and IncrementalAlterConfigs of topics.
- `node_configs`: settings and loggers of nodes, described and changed.
- `config_keys`: what Kafka's keys mean here.

May import: `codec`, `v1`, and `mapping`.
"""
