"""A stream as it lies in the storage: reading it, its `_metadata` and state, copies of checkpoints, checking and collecting."""
