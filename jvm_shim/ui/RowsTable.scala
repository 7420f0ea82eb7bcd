package org.apache.spark.ui.ckpt

import java.net.URLEncoder
import java.nio.charset.StandardCharsets.UTF_8

import scala.xml.Node

import jakarta.servlet.http.HttpServletRequest

import org.apache.spark.ui.{PagedDataSource, PagedTable}

/** `order`: a number or a text to sort by. `wraps`: for texts of any length. */
final case class Column[T](name: String, help: String, order: T => Any, cell: T => Seq[Node], wraps: Boolean = false)

/** Spark's paged table: sorted and cut on the server, so that thousands of rows cost the browser nothing. The first sort is descending. */
class RowsTable[T](
    request: HttpServletRequest, address: String, tag: String, columns: Seq[Column[T]], rows: Seq[T], firstSort: String)
  extends PagedTable[T] {

  private val (sortColumn, descending, size) = getTableParameters(request, tag, firstSort)
  private val base = s"$address?${getParameterOtherTable(request, tag)}"
  private val sort = URLEncoder.encode(sortColumn, UTF_8)

  override def tableId: String = s"$tag-table"
  override def tableCssClass: String = "table table-bordered table-sm table-striped table-head-clickable table-cell-width-limited"
  override def pageSizeFormField: String = s"$tag.pageSize"
  override def pageNumberFormField: String = s"$tag.page"

  override def pageLink(page: Int): String =
    s"$base&$tag.sort=$sort&$tag.desc=$descending&$pageNumberFormField=$page&$pageSizeFormField=$size#$tag"

  override def goButtonFormPath: String = s"$base&$tag.sort=$sort&$tag.desc=$descending#$tag"

  override def dataSource: PagedDataSource[T] = new PagedDataSource[T](size) {
    private lazy val sorted = {
      val column = columns.find(_.name == sortColumn).getOrElse(throw new IllegalArgumentException(s"Unknown column: $sortColumn"))
      val ascending = rows.sortWith((a, b) => RowsTable.less(column.order(a), column.order(b)))
      if (descending) ascending.reverse else ascending
    }
    override def dataSize: Int = rows.size
    override def sliceData(from: Int, to: Int): Seq[T] = sorted.slice(from, to)
  }

  override def headers: Seq[Node] = {
    val shown = columns.map(c => (c.name, true, if (c.help.isEmpty) None else Some(c.help)))
    isSortColumnValid(shown, sortColumn)
    headerRow(shown, descending, size, sortColumn, base, tag, tag)
  }

  override def row(item: T): Seq[Node] = <tr>{columns.map(c => <td class={if (c.wraps) "" else "text-nowrap"}>{c.cell(item)}</td>)}</tr>

  /** One page needs no navigation. */
  override private[ui] def pageNavigation(page: Int, pageSize: Int, totalPages: Int, navigationId: String): Seq[Node] =
    if (totalPages > 1) super.pageNavigation(page, pageSize, totalPages, navigationId) else Nil

  def shown: Seq[Node] = {
    val page = Option(request.getParameter(pageNumberFormField)).flatMap(_.toIntOption).getOrElse(1)
    <div id={tag}>{table(page)}</div>
  }
}

object RowsTable {
  private def less(a: Any, b: Any): Boolean = (a, b) match {
    case (x: Number, y: Number) => x.doubleValue < y.doubleValue
    case (x, y) => x.toString < y.toString
  }
}
