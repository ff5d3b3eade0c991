/**
 * Amounts of service in the unit of a pool: weighted tokens, the time of a full worker, or micro-units of money. No
 * number of a pool's flows stands without its unit.
 */
import { html } from '../vendor/lit-html/lit-html.js';
import { count, duration, signed, signedDuration } from '../core/format.js';
import { difference, number, time, timeDifference } from './number.js';

/** @typedef {import('../core/format.js').MaybeNumber} MaybeNumber */

/**
 * @param {string | undefined} unit as the API names it
 */
function isTime(unit) {
  return unit === 'worker_time';
}

/**
 * Returns the unit in words.
 * @param {string | undefined} unit as the API names it
 */
export function unitName(unit) {
  if (unit === 'money') return 'micro-units of money';
  return isTime(unit) ? 'worker time' : 'tokens';
}

/**
 * Returns what formats an amount for an axis or a cell that names the unit beside it.
 * @param {string | undefined} unit
 * @returns {(value: MaybeNumber) => string}
 */
export function formatOfUnit(unit) {
  return isTime(unit) ? duration : count;
}

/**
 * Returns what formats a difference, with its sign.
 * @param {string | undefined} unit
 * @returns {(value: MaybeNumber) => string}
 */
export function signedFormatOfUnit(unit) {
  return isTime(unit) ? signedDuration : signed;
}

/**
 * Draws an amount where the unit stands beside it already, such as under the head of a column.
 * @param {MaybeNumber} value
 * @param {string | undefined} unit
 */
export function amount(value, unit) {
  return isTime(unit) ? time(value) : number(value);
}

/**
 * Draws a difference where the unit stands beside it already.
 * @param {MaybeNumber} value
 * @param {string | undefined} unit
 */
export function amountDifference(value, unit) {
  return isTime(unit) ? timeDifference(value) : difference(value);
}

/**
 * Draws an amount with its unit: `412 000 tokens`, `2.1 s of worker time`, `1 200 micro-units of money`.
 * @param {MaybeNumber} value
 * @param {string | undefined} unit
 */
export function service(value, unit) {
  return html`${amount(value, unit)}${unitAfter(unit)}`;
}

/**
 * Draws a difference with its unit.
 * @param {MaybeNumber} value
 * @param {string | undefined} unit
 */
export function serviceDifference(value, unit) {
  return html`${amountDifference(value, unit)}${unitAfter(unit)}`;
}

/**
 * Returns an amount with its unit as text.
 * @param {MaybeNumber} value
 * @param {string | undefined} unit
 */
export function serviceText(value, unit) {
  return `${formatOfUnit(unit)(value)}${unitAfter(unit)}`;
}

/** @param {string | undefined} unit */
function unitAfter(unit) {
  return isTime(unit) ? ' of worker time' : ` ${unitName(unit)}`;
}
