/** Numbers, lengths of time and moments, each with its exact value in the tooltip. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { NONE, count, duration, exact, isNumber, localTime, moment, percent, signed, signedDuration, utcTime } from '../core/format.js';

/** @typedef {import('../core/format.js').MaybeNumber} MaybeNumber */

/**
 * @param {MaybeNumber} value
 * @param {string} text
 * @param {string} full
 */
function data(value, text, full) {
  if (!isNumber(value)) return html`<span class="none">${NONE}</span>`;
  return html`<data value=${value} title=${full === text ? nothing : full}>${text}</data>`;
}

/**
 * Draws a whole number.
 * @param {MaybeNumber} value
 */
export function number(value) {
  return data(value, count(value), exact(value));
}

/**
 * Draws a difference, with its sign.
 * @param {MaybeNumber} value
 */
export function difference(value) {
  return data(value, signed(value), exact(value));
}

/**
 * Draws a fraction from 0 to 1 as a percentage.
 * @param {MaybeNumber} value
 */
export function share(value) {
  return data(value, percent(value), isNumber(value) ? `${(value * 100).toFixed(4)} %` : '');
}

/**
 * Draws a length of time.
 * @param {MaybeNumber} microseconds
 */
export function time(microseconds) {
  return data(microseconds, duration(microseconds), isNumber(microseconds) ? `${exact(microseconds)} µs` : '');
}

/**
 * Draws a difference of lengths of time, with its sign.
 * @param {MaybeNumber} microseconds
 */
export function timeDifference(microseconds) {
  return data(microseconds, signedDuration(microseconds), isNumber(microseconds) ? `${exact(microseconds)} µs` : '');
}

/**
 * Draws a length of time that is in milliseconds.
 * @param {MaybeNumber} ms
 */
export function timeOfMs(ms) {
  return data(ms, duration(isNumber(ms) ? ms * 1000 : null), isNumber(ms) ? `${exact(ms)} ms` : '');
}

/**
 * Draws a moment in local time, with UTC in the tooltip.
 * @param {string | number | null | undefined} value
 */
export function when(value) {
  const date = moment(value);
  if (!date) return html`<span class="none">${NONE}</span>`;
  return html`<time datetime=${date.toISOString()} title=${utcTime(date)}>${localTime(date)}</time>`;
}

/**
 * Draws how long ago a moment was; it ticks with the page.
 * @param {string | number | null | undefined} value
 */
export function age(value) {
  const date = moment(value);
  if (!date) return html`<span class="none">${NONE}</span>`;
  const passed = Math.max(0, Date.now() - date.getTime());
  const text = passed < 1000 ? 'now' : duration(Math.floor(passed / 1000) * 1e6);
  return html`<time datetime=${date.toISOString()} title=${`${localTime(date)}, ${utcTime(date)}`}>${text}</time>`;
}
