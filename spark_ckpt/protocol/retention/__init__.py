"""What stays and what goes: completed checkpoints, what they share, old entries of the log, garbage."""
