/** Charts made of a pool's history: parts got and due, what waited, one flow's difference and its bound. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { count, durationOfMs, isNumber, percent, signed } from '../core/format.js';
import { chart } from '../components/chart.js';

/** Number of flows that are drawn by name; there are as many series colours. */
const NAMED_FLOWS = 6;

/** Windows of the charts: since when, and in steps of how many seconds. */
export const WINDOWS = /** @type {const} */ ({
  '5m': { text: '5 min', since: '5m', step: 5 },
  '1h': { text: '1 h', since: '1h', step: 60 },
  '24h': { text: '24 h', since: '24h', step: 60 },
});

/**
 * @typedef {(number | null)[]} Values
 * @typedef {object} FlowHistory
 * @property {string} flow
 * @property {boolean} promised
 * @property {Values | null} got_tokens
 * @property {Values | null} due_tokens
 * @property {Values | null} difference_tokens
 * @property {Values | null} bound_tokens
 * @property {Values | null} asked_tokens
 * @property {Values} in_flight
 * @property {Values} waiting
 * @property {Values} refused
 * @property {Values} wait_p50_ms
 * @property {Values} wait_p95_ms
 *
 * @typedef {object} PoolHistory
 * @property {string} by
 * @property {number} step_s
 * @property {string} start
 * @property {number} points
 * @property {string} kept_since
 * @property {{ slots: Values, in_flight: Values, waiting: Values, granted: Values, refused: Values, wait_p50_ms: Values, wait_p95_ms: Values }} all
 * @property {FlowHistory[]} flows
 * @property {FlowHistory | null} others
 */

/**
 * Returns the moments of a history, in seconds since 1970: the end of each step.
 * @param {{ start: string, points: number, step_s: number }} history
 */
export function momentsOf(history) {
  const start = new Date(history.start).getTime() / 1000;
  return Array.from({ length: history.points }, (_, index) => start + (index + 1) * history.step_s);
}

/** @param {Values | null | undefined} values */
export function sum(values) {
  return (values ?? []).reduce((/** @type {number} */ total, value) => total + (value ?? 0), 0);
}

/**
 * Returns each value as a part of the sum of all flows in the same step. A step in which nothing was served has none.
 * @param {Values | null} values
 * @param {Values} totals
 */
export function partsOf(values, totals) {
  return totals.map((total, index) => {
    const value = values?.[index];
    if (!isNumber(value) || !isNumber(total) || total <= 0) return null;
    return value / total;
  });
}

/**
 * Sums the flows step by step; a step is null if no flow has a value in it.
 * @param {FlowHistory[]} flows
 * @param {'got_tokens' | 'due_tokens'} field
 * @param {number} points
 * @returns {Values}
 */
export function totalsOf(flows, field, points) {
  return Array.from({ length: points }, (_, index) => {
    const known = flows.map((flow) => flow[field]?.[index]).filter(isNumber);
    return known.length ? known.reduce((total, value) => total + value, 0) : null;
  });
}

/**
 * Draws the parts that the largest flows got (solid) and were due (dashed).
 * @param {PoolHistory} history
 * @param {string} by
 */
export function sharesChart(history, by) {
  const all = history.others ? [...history.flows, history.others] : history.flows;
  const got = totalsOf(all, 'got_tokens', history.points);
  const due = totalsOf(all, 'due_tokens', history.points);
  const largest = [...history.flows].sort((a, b) => sum(b.got_tokens) - sum(a.got_tokens)).slice(0, NAMED_FLOWS);
  const series = largest.flatMap((flow, index) => [
    { label: `${flow.flow} got`, values: partsOf(flow.got_tokens, got), color: index + 1 },
    { label: `${flow.flow} due`, values: partsOf(flow.due_tokens, due), color: index + 1, isDashed: true },
  ]);
  const drawn = series.filter((each) => each.values.some(isNumber));
  const rest = all.length - largest.length;
  return html`${chart({ title: `Parts got (solid) and due (dashed), by ${by}`, x: momentsOf(history), series: drawn, format: percent })}
    ${rest > 0 ? html`<p class="quiet">The ${largest.length} largest are drawn; ${rest} more are in the table above.</p>` : nothing}`;
}

/**
 * Draws what waited and what was in flight.
 * @param {{ start: string, points: number, step_s: number }} history
 * @param {{ waiting: Values, in_flight: Values, slots?: Values }} values
 */
export function waitingChart(history, values) {
  const series = [
    { label: 'waiting', values: values.waiting, color: 2 },
    { label: 'in flight', values: values.in_flight, color: 1 },
  ];
  const slots = values.slots ? [{ label: 'slots', values: values.slots, color: /** @type {const} */ ('muted'), isDashed: true }] : [];
  return chart({ title: 'Requests that wait and are in flight', x: momentsOf(history), series: [...series, ...slots], format: count });
}

/**
 * Draws the waits of the requests that went in each step.
 * @param {{ start: string, points: number, step_s: number }} history
 * @param {{ wait_p50_ms: Values, wait_p95_ms: Values }} values
 */
export function waitsChart(history, values) {
  const series = [
    { label: 'wait p95', values: values.wait_p95_ms, color: 2 },
    { label: 'wait p50', values: values.wait_p50_ms, color: 1 },
  ];
  return chart({ title: 'Waits', x: momentsOf(history), series, format: durationOfMs });
}

/**
 * Draws a flow's difference between got and due, with the bound as a band.
 * @param {PoolHistory} history
 * @param {FlowHistory} flow
 */
export function differenceChart(history, flow) {
  if (!flow.difference_tokens) return html`<p class="empty">The policy promises this flow no share of tokens, so there is no difference to draw.</p>`;
  const bound = flow.promised ? flow.bound_tokens : null;
  const series = [{ label: 'got − due', values: flow.difference_tokens, color: 1 }];
  const edges = bound
    ? [
        { label: '+ bound', values: bound, color: 1, isHidden: true },
        { label: '− bound', values: bound.map((value) => (isNumber(value) ? -value : null)), color: 1, isHidden: true },
      ]
    : [];
  return chart({
    title: 'Difference between got and due, in tokens',
    x: momentsOf(history),
    series: [...series, ...edges],
    band: bound ? [1, 2] : undefined,
    format: signed,
  });
}
