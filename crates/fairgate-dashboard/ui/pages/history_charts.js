/** Charts made of a pool's history: parts got and due, what waited, one flow's difference and its bound. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { count, durationOfMs, isNumber, percent } from '../core/format.js';
import { chart } from '../components/chart.js';
import { signedFormatOfUnit, unitName } from '../components/service.js';

/** Number of flows that are drawn by name; there are as many series colours. */
const NAMED_FLOWS = 6;

/** Windows of the charts: since when, and in steps of how many seconds. */
export const WINDOWS = /** @type {const} */ ({
  '5m': { text: '5 min', since: '5m', step: 5 },
  '1h': { text: '1 h', since: '1h', step: 60 },
  '24h': { text: '24 h', since: '24h', step: 60 },
});

/** @typedef {(number | null)[]} Values */
/** @typedef {Api.History} PoolHistory */
/** @typedef {Api.FlowHistory} FlowHistory */

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
 * @param {Values | null | undefined} values
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
 * @param {Api.FlowSeries[]} flows
 * @param {'got' | 'due'} field
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
  const got = totalsOf(all, 'got', history.points);
  const due = totalsOf(all, 'due', history.points);
  const largest = [...history.flows].sort((a, b) => sum(b.got) - sum(a.got)).slice(0, NAMED_FLOWS);
  const series = largest.flatMap((flow, index) => [
    { label: `${flow.flow} got`, values: partsOf(flow.got, got), color: index + 1 },
    { label: `${flow.flow} due`, values: partsOf(flow.due, due), color: index + 1, isDashed: true },
  ]);
  const drawn = series.filter((each) => each.values.some(isNumber));
  const rest = all.length - largest.length;
  return html`${chart({ title: `Parts of the ${unitName(history.unit)} got (solid) and due (dashed), by ${by}`, x: momentsOf(history), series: drawn, format: percent })}
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
 * @param {{ start: string, points: number, step_s: number, unit: string }} history
 * @param {Api.FlowSeries} flow
 */
export function differenceChart(history, flow) {
  const isKnown = flow.difference && (flow.promised || flow.difference.some(isNumber));
  if (!flow.difference || !isKnown) return html`<p class="empty">The policy promises this flow no share of the ${unitName(history.unit)}, so there is no difference to draw.</p>`;
  const bound = flow.promised ? (flow.bound ?? null) : null;
  const series = [{ label: 'got − due', values: flow.difference, color: 1 }];
  const edges = bound
    ? [
        { label: '+ bound', values: bound, color: 1, isHidden: true },
        { label: '− bound', values: bound.map((value) => (isNumber(value) ? -value : null)), color: 1, isHidden: true },
      ]
    : [];
  return chart({
    title: `Difference between got and due, in ${unitName(history.unit)}`,
    x: momentsOf(history),
    series: [...series, ...edges],
    band: bound ? [1, 2] : undefined,
    format: signedFormatOfUnit(history.unit),
  });
}
