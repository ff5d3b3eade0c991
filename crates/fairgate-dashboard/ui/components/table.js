/**
 * Tables. Live rows keep their place: they are put in order when somebody asks for it (a click on a column, `s`), and
 * between two such moments new rows are added at the end.
 */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { repeat } from '../vendor/lit-html/directives/repeat.js';
import { requestUpdate } from '../core/update.js';

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} id
 * @property {string} title
 * @property {(row: Row) => unknown} cell
 * @property {(row: Row) => number | string | null | undefined} [order] value to sort by; none: not sortable
 * @property {boolean} [isNumber] right-aligned
 * @property {string} [help] what the column means, in the tooltip of its head
 */

/** Order of the rows of one table. */
export class RowOrder {
  /**
   * @param {string} [column]
   * @param {boolean} [isDescending]
   */
  constructor(column = '', isDescending = false) {
    this.column = column;
    this.isDescending = isDescending;
    /** @type {Map<string, number>} */
    this.places = new Map();
    this.isStale = true;
  }

  /** Puts the rows in order at the next drawing. */
  sortAgain() {
    this.isStale = true;
    requestUpdate();
  }

  /** @param {string} column */
  sortBy(column) {
    this.isDescending = this.column === column ? !this.isDescending : true;
    this.column = column;
    this.sortAgain();
  }

  /**
   * Returns the rows in their order.
   * @template Row
   * @param {Row[]} rows
   * @param {(row: Row) => string} key
   * @param {Column<Row>[]} columns
   */
  arrange(rows, key, columns) {
    if (this.isStale) {
      const order = columns.find((column) => column.id === this.column)?.order;
      const sorted = order ? [...rows].sort((a, b) => this.compare(order(a), order(b), key(a), key(b))) : rows;
      this.places = new Map(sorted.map((row, index) => [key(row), index]));
      this.isStale = false;
      return sorted;
    }
    for (const row of rows) {
      if (!this.places.has(key(row))) this.places.set(key(row), this.places.size);
    }
    return [...rows].sort((a, b) => (this.places.get(key(a)) ?? 0) - (this.places.get(key(b)) ?? 0));
  }

  /**
   * Compares two values; unknown ones are last in either direction.
   * @param {any} a
   * @param {any} b
   * @param {string} keyOfA
   * @param {string} keyOfB
   */
  compare(a, b, keyOfA, keyOfB) {
    const tie = keyOfA < keyOfB ? -1 : 1;
    if (a === b) return tie;
    if (a === null || a === undefined) return 1;
    if (b === null || b === undefined) return -1;
    return (a < b ? -1 : 1) * (this.isDescending ? -1 : 1);
  }
}

/**
 * Draws a table.
 * @template Row
 * @param {object} table
 * @param {string} table.caption what the table shows; for screen readers
 * @param {Column<Row>[]} table.columns
 * @param {Row[]} table.rows
 * @param {(row: Row) => string} table.key
 * @param {RowOrder} [table.order]
 * @param {(row: Row) => string} [table.rowClass]
 * @param {unknown} [table.empty] what stands there without rows
 */
export function dataTable({ caption, columns, rows, key, order, rowClass, empty }) {
  if (rows.length === 0) return html`<div class="empty">${empty ?? 'Nothing here.'}</div>`;
  const arranged = order ? order.arrange(rows, key, columns) : rows;
  return html`<div class="table-scroll" tabindex="0" role="region" aria-label=${caption}>
    <table>
      <caption class="hidden">${caption}</caption>
      <thead>
        <tr>${columns.map((column) => head(column, order))}</tr>
      </thead>
      <tbody>
        ${repeat(arranged, key, (row) => body(row, key(row), columns, rowClass?.(row) ?? ''))}
      </tbody>
    </table>
  </div>`;
}

/**
 * @param {Column<any>} column
 * @param {RowOrder | undefined} order
 */
function head(column, order) {
  const kind = column.isNumber ? 'number' : '';
  if (!order || !column.order) {
    return html`<th scope="col" class=${kind} title=${column.help ?? nothing}>${column.title}</th>`;
  }
  const isSorted = order.column === column.id;
  const sorted = isSorted ? (order.isDescending ? 'descending' : 'ascending') : 'none';
  return html`<th scope="col" class=${kind} aria-sort=${sorted} title=${column.help ?? nothing}>
    <button class="plain" @click=${() => order.sortBy(column.id)}>${column.title}<span aria-hidden="true">${isSorted ? (order.isDescending ? ' ▾' : ' ▴') : ''}</span></button>
  </th>`;
}

/**
 * @param {any} row
 * @param {string} key
 * @param {Column<any>[]} columns
 * @param {string} rowClass
 */
function body(row, key, columns, rowClass) {
  return html`<tr data-row=${key} class=${rowClass}>
    ${columns.map((column) => html`<td data-column=${column.id} class=${column.isNumber ? 'number' : ''}>${column.cell(row)}</td>`)}
  </tr>`;
}

/**
 * Returns the key `s`: sorts by the next column that can be sorted by.
 * @param {RowOrder} order
 * @param {() => Column<any>[]} columns
 * @returns {import('../core/keys.js').KeyBinding}
 */
export function sortKey(order, columns) {
  return {
    keys: 's',
    does: 'sort again, by the next column',
    run: () => {
      const sortable = columns().filter((column) => column.order);
      const index = sortable.findIndex((column) => column.id === order.column);
      order.sortBy(sortable[(index + 1) % sortable.length].id);
    },
  };
}
