"""The layout of stock Spark's `checkpointLocation`: out of a checkpoint of ours, and into one."""
