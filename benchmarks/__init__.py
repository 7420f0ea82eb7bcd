"""What a checkpoint costs, side by side with the systems one would choose between: `python -m benchmarks --help`."""
