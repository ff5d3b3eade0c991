/**
 * Charts over time. uPlot draws on a canvas, which neither keyboard nor screen reader can read: each chart has a table
 * of the same numbers beside it.
 */
import uPlot from '../vendor/uplot/uPlot.esm.js';
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { NONE, isNumber, localTime } from '../core/format.js';
import { theme } from '../core/theme.js';
import { requestUpdate } from '../core/update.js';

/**
 * @typedef {object} ChartSeries
 * @property {string} label
 * @property {(number | null)[]} values
 * @property {number | 'muted'} color number of a series colour, 1 to 6
 * @property {boolean} [isDashed]
 * @property {boolean} [isHidden] an edge of the band: no line
 *
 * @typedef {object} ChartSpec
 * @property {string} title
 * @property {number[]} x moments in seconds since 1970
 * @property {ChartSeries[]} series
 * @property {[upper: number, lower: number]} [band] numbers of the two series that bound a band, from 0
 * @property {(value: number) => string} format with the unit
 * @property {number} [height] in pixels
 */

/** Number of rows that a chart's table has: the latest. */
const TABLE_ROWS = 60;

/** The canvas of one chart. It is made again when the theme or the series change, and otherwise gets new values. */
class ChartElement extends HTMLElement {
  constructor() {
    super();
    /** @type {ChartSpec | null} */
    this.current = null;
    /** @type {uPlot | null} */
    this.plot = null;
    this.shape = '';
    this.resizing = new ResizeObserver(() => this.resize());
  }

  connectedCallback() {
    this.resizing.observe(this);
    this.draw();
  }

  disconnectedCallback() {
    this.resizing.disconnect();
    this.plot?.destroy();
    this.plot = null;
    this.shape = '';
  }

  /** @param {ChartSpec} spec */
  set spec(spec) {
    this.current = spec;
    this.draw();
  }

  draw() {
    const spec = this.current;
    if (!spec || !this.isConnected || this.clientWidth === 0) return;
    const data = /** @type {uPlot.AlignedData} */ ([spec.x, ...spec.series.map((series) => series.values)]);
    const looks = spec.series.map((series) => [series.label, series.color, series.isDashed, series.isHidden]);
    const shape = JSON.stringify([theme.version, spec.height, spec.band, looks]);
    if (this.plot && shape === this.shape) {
      this.plot.setData(data);
      return;
    }
    this.plot?.destroy();
    this.shape = shape;
    this.plot = new uPlot(options(spec, this.clientWidth, getComputedStyle(this)), data, this);
  }

  resize() {
    if (!this.plot) this.draw();
    else if (this.current) this.plot.setSize({ width: this.clientWidth, height: this.current.height ?? 180 });
  }
}

customElements.define('fg-chart', ChartElement);

// Pages without a chart need no styles of one, so the first paint does not wait for them.
const styles = document.createElement('link');
styles.rel = 'stylesheet';
styles.href = '/assets/vendor/uplot/uPlot.min.css';
document.head.append(styles);

/**
 * @param {ChartSpec} spec
 * @param {number} width
 * @param {CSSStyleDeclaration} style
 * @returns {uPlot.Options}
 */
function options(spec, width, style) {
  const color = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  const ink = color('--quiet');
  const axis = { stroke: ink, grid: { stroke: color('--line'), width: 1 }, ticks: { show: false }, font: '12px system-ui, sans-serif' };
  return {
    width,
    height: spec.height ?? 180,
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    scales: { x: { time: true }, y: { range: rangeOfValues } },
    axes: [
      { ...axis, size: 28, values: (_, splits) => splits.map((split) => localTime(new Date(split * 1000)).slice(-8, -3)) },
      { ...axis, size: 64, values: (_, splits) => splits.map((split) => spec.format(split)) },
    ],
    series: [
      {},
      ...spec.series.map((series) => ({
        label: series.label,
        stroke: series.isHidden ? 'transparent' : color(series.color === 'muted' ? '--quiet' : `--series-${series.color}`),
        width: series.isDashed ? 1.5 : 2,
        dash: series.isDashed ? [5, 4] : undefined,
        points: { show: false },
        spanGaps: false,
      })),
    ],
    bands: spec.band ? [{ series: [spec.band[0] + 1, spec.band[1] + 1], fill: color('--band') }] : undefined,
  };
}

/**
 * Returns the range of the vertical axis: with zero, and never without height.
 * @param {uPlot} _
 * @param {number | null} least
 * @param {number | null} most
 * @returns {[number, number]}
 */
function rangeOfValues(_, least, most) {
  const low = Math.min(0, least ?? 0);
  const high = Math.max(0, most ?? 0);
  const margin = (high - low) * 0.06;
  return high === low ? [low, low + 1] : [low < 0 ? low - margin : 0, high + margin];
}

/** @type {Set<string>} */
const openTables = new Set();

/**
 * Draws a chart with its legend and its table.
 * @param {ChartSpec} spec
 */
export function chart(spec) {
  const shown = spec.series.filter((series) => !series.isHidden);
  const known = spec.series.some((series) => series.values.some(isNumber));
  if (!known) return html`<div class="empty">No history yet. The gateway keeps some from now on; a point comes every five seconds.</div>`;
  return html`<figure class="chart">
    <figcaption>${spec.title}</figcaption>
    <ul class="legend">${shown.map(legendEntry)}${spec.band ? html`<li><span class="swatch band" aria-hidden="true"></span>allowed by the bound</li>` : nothing}</ul>
    <fg-chart aria-hidden="true" .spec=${spec}></fg-chart>
    <details class="chart-table" ?open=${openTables.has(spec.title)} @toggle=${(/** @type {Event} */ event) => toggled(event, spec.title)}>
      <summary>Numbers of this chart</summary>
      ${openTables.has(spec.title) ? table(spec) : nothing}
    </details>
  </figure>`;
}

/**
 * @param {Event} event
 * @param {string} title
 */
function toggled(event, title) {
  const isOpen = /** @type {HTMLDetailsElement} */ (event.target).open;
  if (isOpen === openTables.has(title)) return;
  if (isOpen) openTables.add(title);
  else openTables.delete(title);
  requestUpdate();
}

/** @param {ChartSeries} series */
function legendEntry(series) {
  const look = `swatch color-${series.color}${series.isDashed ? ' dashed' : ''}`;
  return html`<li><span class=${look} aria-hidden="true"></span>${series.label}</li>`;
}

/** @param {ChartSpec} spec */
function table(spec) {
  const first = Math.max(0, spec.x.length - TABLE_ROWS);
  const rows = spec.x.slice(first).map((at, index) => ({ at, index: first + index })).reverse();
  return html`<div class="table-scroll" tabindex="0" role="region" aria-label=${spec.title}>
    <table>
      <caption class="hidden">${spec.title}</caption>
      <thead><tr><th scope="col">at</th>${spec.series.map((series) => html`<th scope="col" class="number">${series.label}</th>`)}</tr></thead>
      <tbody>${rows.map(({ at, index }) => html`<tr>
        <th scope="row">${localTime(new Date(at * 1000))}</th>
        ${spec.series.map((series) => html`<td class="number">${cell(series.values[index], spec.format)}</td>`)}
      </tr>`)}</tbody>
    </table>
  </div>`;
}

/**
 * @param {number | null | undefined} value
 * @param {(value: number) => string} format
 */
function cell(value, format) {
  return isNumber(value) ? format(value) : NONE;
}
