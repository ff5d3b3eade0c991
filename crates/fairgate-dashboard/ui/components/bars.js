/** Small pictures beside numbers. Widths are attributes of SVG: the policy of the pages forbids inline styles. */
import { html, svg } from '../vendor/lit-html/lit-html.js';
import { count, isNumber, percent } from '../core/format.js';

/** @typedef {import('../core/format.js').MaybeNumber} MaybeNumber */

/**
 * Draws got as a bar and due as a tick, both parts of one.
 * @param {MaybeNumber} got
 * @param {MaybeNumber} due
 * @param {{ isOutside?: boolean }} [options]
 */
export function shareBar(got, due, options = {}) {
  const label = `got ${percent(got)}, due ${percent(due)}`;
  const x = isNumber(due) ? Number(part(due)) : 0;
  return html`<svg class=${options.isOutside ? 'bar outside' : 'bar'} viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label=${label}>
    <rect class="track" width="100" height="10"></rect>
    <rect class="fill" width=${isNumber(got) ? part(got) : 0} y="2" height="6"></rect>
    ${isNumber(due) ? svg`<rect class="tick" x=${Math.min(x, 99)} width="1" height="10"></rect>` : null}
  </svg>`;
}

/** @param {number} fraction */
function part(fraction) {
  return Math.max(0, Math.min(100, fraction * 100)).toFixed(2);
}

/**
 * Draws how much of a limit is used. Full is marked by its class, not by its length alone.
 * @param {number} used
 * @param {MaybeNumber} limit
 * @param {string} of what is used, for the label
 */
export function fillBar(used, limit, of) {
  const fraction = isNumber(limit) && limit > 0 ? used / limit : 0;
  const label = isNumber(limit) ? `${count(used)} of ${count(limit)} ${of}` : `${count(used)} ${of}, no limit`;
  const level = fraction >= 1 ? 'full' : '';
  return html`<svg class="bar ${level}" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label=${label}>
    <rect class="track" width="100" height="10"></rect>
    <rect class="fill" width=${part(fraction)} y="1" height="8"></rect>
  </svg>`;
}

/**
 * Draws a row of values as a line, without numbers: the table beside it has them. Gaps stay gaps.
 * @param {MaybeNumber[]} values
 * @param {string} label
 */
export function sparkline(values, label) {
  const known = values.filter(isNumber);
  if (known.length === 0) return html`<span class="none">no history yet</span>`;
  const top = Math.max(1, ...known);
  const step = 100 / Math.max(1, values.length - 1);
  const points = values.map((value, index) => (isNumber(value) ? [index * step, 19 - (value / top) * 18] : null));
  return html`<svg class="sparkline" viewBox="0 0 100 20" preserveAspectRatio="none" role="img" aria-label="${label}: now ${count(known.at(-1))}, at most ${count(Math.max(...known))}">
    ${segments(points).map((line) => svg`<polyline points=${line}></polyline>`)}
  </svg>`;
}

/** @param {(number[] | null)[]} points */
function segments(points) {
  /** @type {string[][]} */
  const lines = [[]];
  for (const point of points) {
    if (point) lines.at(-1)?.push(point.map((each) => each.toFixed(2)).join(','));
    else if (lines.at(-1)?.length) lines.push([]);
  }
  return lines.filter((line) => line.length > 0).map((line) => line.join(' '));
}
