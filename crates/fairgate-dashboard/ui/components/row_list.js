/**
 * A list of very many rows. Only those in view are in the document, whatever the list holds. All rows have one height,
 * so a row's place follows from its number.
 */
import { html, nothing, render } from '../vendor/lit-html/lit-html.js';

/** Height of a row in pixels, as in the style sheet, and rows that are drawn beyond each edge of the view. */
export const ROW_HEIGHT = 30;
const OVERSCAN = 8;

/** Distance from the end, in rows, at which more are asked for. */
const NEAR_END = 200;

/**
 * @typedef {object} RowListSpec
 * @property {string} label
 * @property {string[]} columns heads of the columns
 * @property {any[]} rows
 * @property {(row: any) => unknown[]} cells one for each column; the first has the row's link
 * @property {(row: any) => string} key
 * @property {boolean} isComplete false if more rows can be loaded
 * @property {() => void} loadMore called when the view comes near the end
 */

export class RowListElement extends HTMLElement {
  constructor() {
    super();
    /** @type {RowListSpec | null} */
    this.current = null;
    this.scheduled = false;
    // Kept, because asking the element would make the browser lay out the page in the middle of a drawing.
    this.top = 0;
    this.viewHeight = 0;
    this.scroller = document.createElement('div');
    this.spacer = document.createElement('div');
    this.rows = document.createElement('div');
    this.head = document.createElement('div');
  }

  connectedCallback() {
    if (this.scroller.isConnected) return;
    this.scroller.className = 'scroller';
    this.scroller.tabIndex = 0;
    this.spacer.className = 'spacer';
    this.rows.className = 'rows';
    this.head.setAttribute('role', 'rowgroup');
    this.scroller.setAttribute('role', 'rowgroup');
    this.spacer.setAttribute('role', 'presentation');
    this.rows.setAttribute('role', 'presentation');
    this.setAttribute('role', 'table');
    this.spacer.append(this.rows);
    this.scroller.append(this.spacer);
    this.append(this.head, this.scroller);
    this.scroller.addEventListener('scroll', () => this.scrolled(), { passive: true });
    this.addEventListener('keydown', (event) => this.move(event));
    new ResizeObserver(() => this.resized()).observe(this.scroller);
    this.resized();
  }

  /** @param {RowListSpec} spec */
  set spec(spec) {
    const isSame = this.current?.rows === spec.rows && this.current.isComplete === spec.isComplete;
    this.current = spec;
    // The page is drawn each second, for its ages; these rows have none.
    if (!isSame) this.schedule();
  }

  scrolled() {
    this.top = this.scroller.scrollTop;
    this.schedule();
  }

  resized() {
    this.viewHeight = this.scroller.clientHeight;
    this.schedule();
  }

  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.draw();
    });
  }

  draw() {
    const spec = this.current;
    if (!spec || !this.isConnected) return;
    const { rows } = spec;
    const first = Math.max(0, Math.floor(this.top / ROW_HEIGHT) - OVERSCAN);
    const inView = Math.ceil(this.viewHeight / ROW_HEIGHT) + 2 * OVERSCAN;
    const last = Math.min(rows.length, first + inView);
    this.setAttribute('aria-label', spec.label);
    this.setAttribute('aria-rowcount', spec.isComplete ? String(rows.length + 1) : '-1');
    this.scroller.setAttribute('aria-label', spec.label);
    // Set on the object, not in the markup: the policy of the pages forbids style attributes.
    this.spacer.style.height = `${rows.length * ROW_HEIGHT}px`;
    this.rows.style.transform = `translateY(${first * ROW_HEIGHT}px)`;
    const heads = spec.columns.map((title) => html`<div role="columnheader">${title}</div>`);
    render(html`<div role="row" class="row head" aria-rowindex="1">${heads}</div>`, this.head);
    render(rows.slice(first, last).map((row, index) => rowView(spec, row, first + index)), this.rows);
    if (!spec.isComplete && last > rows.length - NEAR_END) spec.loadMore();
  }

  /**
   * Moves the focus between rows; what is not in the document yet is scrolled to first.
   * @param {KeyboardEvent} event
   */
  move(event) {
    const row = event.target instanceof Element ? event.target.closest('[data-index]') : null;
    const count = this.current?.rows.length ?? 0;
    if (!row || count === 0) return;
    const index = Number(row.getAttribute('data-index'));
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW_HEIGHT) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -count, End: count };
    const step = /** @type {Record<string, number>} */ (steps)[event.key];
    if (step === undefined) return;
    event.preventDefault();
    this.show(Math.max(0, Math.min(count - 1, index + step)));
  }

  /**
   * Scrolls to a row and gives it the focus.
   * @param {number} index
   */
  show(index) {
    const top = index * ROW_HEIGHT;
    const { scrollTop, clientHeight } = this.scroller;
    if (top < scrollTop) this.scroller.scrollTop = top;
    else if (top + ROW_HEIGHT > scrollTop + clientHeight) this.scroller.scrollTop = top + ROW_HEIGHT - clientHeight;
    this.top = this.scroller.scrollTop;
    this.draw();
    const link = this.rows.querySelector(`[data-index="${index}"] a`);
    if (link instanceof HTMLElement) link.focus({ preventScroll: true });
  }
}

customElements.define('fg-rows', RowListElement);

/**
 * @param {RowListSpec} spec
 * @param {any} row
 * @param {number} index
 */
function rowView(spec, row, index) {
  return html`<div role="row" class="row" aria-rowindex=${index + 2} data-index=${index} data-id=${spec.key(row)}>
    ${spec.cells(row).map((cell) => html`<div role="cell">${cell}</div>`)}
  </div>`;
}

/**
 * Draws the list.
 * @param {RowListSpec} spec
 * @param {string} kind class that sets the columns' widths
 * @param {unknown} empty what stands there without rows
 */
export function rowList(spec, kind, empty) {
  if (spec.rows.length === 0) return html`<div class="empty">${empty ?? nothing}</div>`;
  return html`<fg-rows class=${kind} .spec=${spec}></fg-rows>`;
}
