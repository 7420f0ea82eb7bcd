"""The executor-side process: uploads what the state stores commit, fetches what they load (docs/pipes.md)."""
