"""What planning and inference reach, without learning: the references beside learned agents.

`exam.policy.make` makes them by name.
"""
