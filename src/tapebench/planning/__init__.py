"""References that need no training: planning with the true rule, and inference of it.

`exam.policy.make` makes them by name.
"""
