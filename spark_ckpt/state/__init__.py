"""What a checkpoint's state stores hold, decoded by the schemas that Spark has stored with it. Neither Spark nor a JVM is needed."""
