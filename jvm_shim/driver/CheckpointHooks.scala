package org.apache.spark.ckpt

import java.util.function.{Function => Callback}

import scala.collection.mutable

/** The hooks of this application. A query has those that were registered before it started. */
object CheckpointHooks {
  /** Of one query: their states share a line of the coordinator's pipe. */
  private val Most = 16
  private val Name = "[A-Za-z0-9._-]{1,100}"

  private final case class Registered(thread: HookThread, var root: Option[String])

  private val hooks = mutable.LinkedHashMap.empty[(String, Option[String]), Registered]

  /**
   * `name`: under which its state is in checkpoints. `query`: the name of the query that it belongs to (`queryName`), null where the
   * application has one query with checkpoints only. One that is registered again takes the place of the first when its query starts next:
   * a query that runs keeps the one that it began with, and its thread, which goes when it has no more work.
   */
  def register(name: String, hook: CheckpointHook, query: String): Unit = synchronized {
    if (!name.matches(Name)) throw new IllegalArgumentException(s"'$name' is no name of a hook; use letters, digits, '.', '_' and '-', 100 at most")
    val owner = Option(query)
    if (hooks.keys.exists { case (other, its) => other == name && its != owner && (its.isEmpty || owner.isEmpty) }) {
      throw new IllegalArgumentException(s"there is a hook '$name' for every query and another one for one query; give them different names")
    }
    hooks.put((name, owner), Registered(new HookThread(name, hook), None))
  }

  /** From the driver's Python: a line of JSON for each call. */
  def registerPython(name: String, python: Callback[String, String], query: String): Unit = register(name, new PythonHook(python), query)

  /** Those of the query at that location, with that name, if it has one. `isRunning`: whether a query runs at a location. */
  def of(root: String, query: Option[String], limits: HookLimits, isRunning: String => Boolean): QueryHooks = synchronized {
    val mine = hooks.toSeq.collect { case ((name, owner), registered) if owner.forall(query.contains) =>
      if (owner.isEmpty) registered.root.filter(other => other != root && isRunning(other)).foreach(other => throw new CheckpointFailure(CheckpointFailure.Config,
        s"the hook '$name' was registered without the name of a query, and this application has two, at $other and $root; say which query it belongs to: register_hook(..., query=<its queryName>)"))
      registered
    }
    if (mine.size > Most) throw new CheckpointFailure(CheckpointFailure.Config,
      s"the query at $root has ${mine.size} hooks, more than $Most; let one hook do the work of several")
    mine.foreach(_.root = Some(root))
    new QueryHooks(mine.map(_.thread), limits)
  }

  def clear(): Unit = synchronized {
    hooks.values.foreach(_.thread.close())
    hooks.clear()
  }
}
