"""Checkpoints in the making: when one begins, what it waits for, how it ends."""
