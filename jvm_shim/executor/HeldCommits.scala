package org.apache.spark.ckpt

import scala.collection.mutable

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import com.fasterxml.jackson.databind.util.RawValue

import org.apache.spark.ckpt.Json.Fields

/**
 * What this executor has committed and may still have to make durable. Of each store that is every commit of its two newest epochs (the
 * attempt that won is known to the driver only; a task that fails after its commit runs again, elsewhere perhaps, on what it had begun with),
 * and every commit that is to be uploaded and is not acknowledged yet.
 */
final class HeldCommits {
  import HeldCommits._

  private val held = mutable.LinkedHashMap.empty[String, Held]
  private val newest = mutable.Map.empty[Store, Seq[(Long, Long)]]
  private val ofStore = mutable.Map.empty[Store, mutable.Set[String]]

  def add(uid: String, line: ObjectNode): Unit = synchronized {
    val commit = new Held(line)
    val store = commit.store
    // A task of an earlier run may be late: it is not what the store's state is now.
    newest(store) = (commit.at +: newest.getOrElse(store, Nil)).distinct.sorted(Ordering[(Long, Long)].reverse).take(Epochs)
    held(uid) = commit
    val own = ofStore.getOrElseUpdate(store, mutable.Set.empty)
    own += uid
    line.optLong("late").foreach(epoch => wanted(commit.root, commit.run, epoch))
    own.filterNot(id => isNeeded(held(id))).foreach(drop)
  }

  def contains(uid: String): Boolean = synchronized(held.contains(uid))

  def isEmpty: Boolean = synchronized(held.isEmpty)

  /**
   * What the agent says of a commit: an acknowledgement, or a decline. An agent that replaces it is told the handles with the commit. If it
   * stored the commit in other objects, the coordinator would not know these: the first acknowledgement of a unique id counts.
   */
  def acknowledged(uid: String, ack: JsonNode): Unit = synchronized {
    for (h <- held.get(uid); handles <- Option(ack.get("handles"))) h.handles = Some(Json.line(handles))
  }

  /** The agent will say nothing more of it: acknowledged or declined. */
  def settled(uid: String): Unit = synchronized {
    held.get(uid).foreach { h =>
      h.uploading = false
      if (!isNeeded(h)) drop(uid)
    }
  }

  /** As `settled`; but where it is evacuated, that is tried again. */
  def declined(uid: String): Unit = synchronized {
    held.get(uid).foreach(_.newly = true)
    settled(uid)
  }

  /** That epoch has become a checkpoint after it had ended. */
  def wanted(root: String, run: Long, epoch: Long): Unit = synchronized {
    held.values.foreach(h => if (h.root == root && h.at == ((run, epoch))) h.uploading = true)
  }

  /** What its stores' states are is to be uploaded. Is it more than what is already? */
  def evacuated(): Boolean = synchronized {
    val kept = held.valuesIterator.filterNot(_.uploading).filter(h => h.newly && newest.get(h.store).exists(_.head == h.at)).toSeq
    kept.foreach { h =>
      h.uploading = true
      h.newly = false
    }
    kept.nonEmpty
  }

  /** Another agent, which was told all lines, takes what is being evacuated for merely kept. Is there any? */
  def evacuatedAnew(): Boolean = synchronized {
    val begun = held.valuesIterator.filter(h => h.uploading && !h.newly).toSeq
    begun.foreach { h =>
      h.uploading = false
      h.newly = true
    }
    begun.nonEmpty && evacuated()
  }

  def handedOver(uid: String): Unit = synchronized { held.get(uid).foreach(_.uploading = true) }

  /** A completed checkpoint holds everything up to that epoch; None: the run has ended, and nothing of it is needed. */
  def covered(root: String, run: Long, upTo: Option[Long]): Unit = synchronized {
    held.collect { case (uid, h) if h.root == root && h.run == run && !upTo.exists(epoch => h.epoch > epoch || h.uploading) => uid }.foreach(drop)
    newest.mapValuesInPlace((store, ats) => ats.filter(at => ofStore.get(store).exists(_.exists(held(_).at == at)))).filterInPlace((_, ats) => ats.nonEmpty)
  }

  def remove(uid: String): Unit = synchronized(drop(uid))

  private def drop(uid: String): Unit = held.remove(uid).foreach { h =>
    ofStore.updateWith(h.store)(_.map(_ -= uid).filter(_.nonEmpty))
  }

  def uids: Seq[String] = synchronized(held.keys.toSeq)

  /** All commit lines, oldest epoch first; with their handles those that are acknowledged. */
  def lines: Seq[(String, ObjectNode)] = synchronized(held.toSeq.sortBy(_._2.at).map { case (uid, h) =>
    uid -> h.handles.fold(h.line)(text => h.line.deepCopy().putRawValue("handles", new RawValue(text)))
  })

  def isUploading: Boolean = synchronized(held.valuesIterator.exists(_.uploading))

  /** Those whose upload is under way. */
  def uploading: Seq[(String, ObjectNode)] = synchronized(held.toSeq.collect { case (uid, h) if h.uploading => uid -> h.line })

  private def isNeeded(h: Held): Boolean = h.uploading || newest.get(h.store).exists(_.contains(h.at))
}

object HeldCommits {
  private val Epochs = 2
  private type Store = (String, Long, Long, String)

  private final class Held(val line: ObjectNode) {
    val root: String = line.str("root")
    val run: Long = line.long("run")
    val epoch: Long = line.long("epoch")
    val at: (Long, Long) = (run, epoch)
    val store: Store = (root, line.long("op"), line.long("part"), line.str("store"))
    /** With which it was acknowledged, as text: there may be hundreds for each of thousands of stores. */
    var handles = Option.empty[String]
    /** Not evacuated yet. */
    var newly = true
    var uploading: Boolean = line.get("checkpoint").asBoolean()
  }
}
