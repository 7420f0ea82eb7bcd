"""What a person may set: the options `spark.ckpt.*`, and the settings of Spark's own that follow from the plugin."""
