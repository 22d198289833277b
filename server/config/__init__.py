"""The configuration of a node.

- `settings`: a node's settings: flags override the environment, the environment a file, the file the defaults.
- `setting_values`: types and parsers for values of settings; `plain_numbers`: numbers in text.
- `worker_settings`: the settings of each worker of a machine.
- `dynamic_settings`: the settings that can be changed at run time, and their effective values.
- `options`: the options that a node is built with; `consumer_group_limits`: the part about consumer groups.
- `transaction_limits`: the limits of transactions.
- `listening`: checks listen addresses before anything starts.

May import: `step`.
"""
