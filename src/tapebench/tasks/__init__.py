"""What is asked of an agent: rules to train on and rules held out, tapes, goals, observations."""
