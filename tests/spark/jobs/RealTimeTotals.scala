package realtime

import org.apache.spark.sql.{DataFrame, Encoder, Encoders}
import org.apache.spark.sql.streaming.{OutputMode, StatefulProcessor, TTLConfig, TimeMode, TimerValues, ValueState}

case class Number(key: String, number: Long)
case class Total(n: Long, most: Long, total: Long)
case class Said(key: String, value: String)

/** The running totals of a key, as `real_time_queries.py` has them by an aggregation. */
class Totals extends StatefulProcessor[String, Number, Said] {
  @transient private var totals: ValueState[Total] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit =
    totals = getHandle.getValueState("totals", Encoders.product[Total], TTLConfig.NONE)

  override def handleInputRows(key: String, rows: Iterator[Number], timerValues: TimerValues): Iterator[Said] = rows.map { row =>
    val before = Option(totals.get()).getOrElse(Total(0, row.number, 0))
    val now = Total(before.n + 1, before.most.max(row.number), before.total + row.number)
    totals.update(now)
    Said(key, s"""{"n":${now.n},"most":${now.most},"total":${now.total}}""")
  }
}

object Totals {
  private implicit val strings: Encoder[String] = Encoders.STRING
  private implicit val numbers: Encoder[Number] = Encoders.product
  private implicit val said: Encoder[Said] = Encoders.product

  /** `read` has a key and a number. */
  def of(read: DataFrame): DataFrame =
    read.as[Number].groupByKey(_.key).transformWithState(new Totals, TimeMode.None(), OutputMode.Update()).toDF()
}
