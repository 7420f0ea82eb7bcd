"""A process of its own and what it stands on: the pipe to the JVM, the JAR, its packages, its scratch folders."""
