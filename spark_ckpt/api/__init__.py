"""What users call from Python: enabling the plugin, restarting after failures, listening, asking for a savepoint."""
