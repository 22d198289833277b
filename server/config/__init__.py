"""The configuration of a node.

- `settings`: a node's settings: flags over environment over file over defaults.
- `setting_values`: their values as typed; `plain_numbers`: numbers in text.
- `options`: what a node gets when it is made; `consumer_group_limits`: the part about consumer groups.
- `listening`: checks addresses before anything starts.

May import: `step`.
"""
