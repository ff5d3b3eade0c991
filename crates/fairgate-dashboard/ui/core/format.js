/**
 * Numbers, times and names as text. No formatter touches the page, so all of them are tested without a browser.
 * `–` stands for a number that is unknown or does not apply; 0 is zero.
 */

export const NONE = '–';

/** Longest name that is drawn in full; the rest is in the tooltip. */
export const NAME_CHARS = 60;

const GROUP = '\u202f';

/** @typedef {number | null | undefined} MaybeNumber */

/**
 * Formats a whole number: `12 345`, and `1.2 M` from a million on.
 * @param {MaybeNumber} value
 */
export function count(value) {
  if (!isNumber(value)) return NONE;
  const size = Math.abs(value);
  if (size < 999_950) return exact(value);
  const [divisor, unit] = size < 999_950_000 ? [1e6, 'M'] : size < 999_950_000_000 ? [1e9, 'G'] : [1e12, 'T'];
  return `${(value / divisor).toFixed(1)}${GROUP}${unit}`.replace('-', '−');
}

/**
 * Formats a whole number with all its digits: `1 204 110`.
 * @param {MaybeNumber} value
 */
export function exact(value) {
  if (!isNumber(value)) return NONE;
  const digits = String(Math.round(Math.abs(value))).replace(/\B(?=(\d{3})+$)/g, GROUP);
  return (Math.round(value) < 0 ? '−' : '') + digits;
}

/**
 * Formats a difference with its sign: `+24 310`, `−1 002`, `0`.
 * @param {MaybeNumber} value
 */
export function signed(value) {
  if (!isNumber(value)) return NONE;
  return (value > 0 ? '+' : '') + count(value);
}

/**
 * Formats a fraction from 0 to 1: `15.9 %`. What is not nothing is never drawn as `0 %`.
 * @param {MaybeNumber} fraction
 */
export function percent(fraction) {
  if (!isNumber(fraction)) return NONE;
  if (fraction === 0) return `0${GROUP}%`;
  if (fraction > 0 && fraction < 0.0005) return `<0.1${GROUP}%`;
  const text = (fraction * 100).toFixed(1);
  return `${text === '100.0' ? '100' : text}${GROUP}%`;
}

/**
 * Formats a length of time with two digits that count: `0.4 ms`, `41 ms`, `0.41 s`, `2.1 s`, `41 s`, `12 min`, `5 h`.
 * @param {MaybeNumber} microseconds
 * @returns {string}
 */
export function duration(microseconds) {
  if (!isNumber(microseconds)) return NONE;
  const s = microseconds / 1e6;
  if (s < 0) return `−${duration(-microseconds)}`;
  if (s === 0) return `0${GROUP}s`;
  if (s < 0.00995) return `${(s * 1000).toFixed(1)}${GROUP}ms`;
  if (s < 0.0995) return `${Math.round(s * 1000)}${GROUP}ms`;
  if (s < 0.995) return `${s.toFixed(2)}${GROUP}s`;
  if (s < 9.95) return `${s.toFixed(1)}${GROUP}s`;
  if (s < 119.5) return `${Math.round(s)}${GROUP}s`;
  if (s < 7170) return `${Math.round(s / 60)}${GROUP}min`;
  if (s < 171_000) return `${Math.round(s / 3600)}${GROUP}h`;
  return `${Math.round(s / 86_400)}${GROUP}d`;
}

/**
 * Formats a difference of lengths of time with its sign: `+1.2 s`, `−41 ms`, `0 s`.
 * @param {MaybeNumber} microseconds
 */
export function signedDuration(microseconds) {
  return isNumber(microseconds) && microseconds > 0 ? `+${duration(microseconds)}` : duration(microseconds);
}

/**
 * Formats milliseconds as a length of time.
 * @param {MaybeNumber} ms
 */
export function durationOfMs(ms) {
  return duration(isNumber(ms) ? ms * 1000 : null);
}

/**
 * Formats decimal text of money: at least two decimals, no zeros after them: `1 204.11`, `0.000120` → `0.00012`.
 * @param {string | null | undefined} amount
 * @param {string | null} [currency]
 */
export function money(amount, currency) {
  if (amount === null || amount === undefined || amount === '') return NONE;
  const match = /^(-?)(\d+)(?:\.(\d+))?$/.exec(amount);
  if (!match) return amount;
  const [, sign, whole, rest = ''] = match;
  const cents = rest.replace(/0+$/, '').padEnd(2, '0');
  const text = `${sign ? '−' : ''}${whole.replace(/\B(?=(\d{3})+$)/g, GROUP)}.${cents}`;
  return currency ? `${text}${GROUP}${currency}` : text;
}

/**
 * Formats a size in bytes: `512 B`, `1.5 MiB`.
 * @param {MaybeNumber} size
 */
export function bytes(size) {
  if (!isNumber(size)) return NONE;
  if (size < 1024) return `${size}${GROUP}B`;
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  let value = size / 1024;
  let unit = 0;
  while (value >= 1023.95 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(1)}${GROUP}${units[unit]}`;
}

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

/** @param {number} value */
const two = (value) => String(value).padStart(2, '0');

/**
 * Formats a moment in local time, 24 hours, to the second; the day stands before it unless it is today.
 * @param {Date} moment
 * @param {Date} [now]
 */
export function localTime(moment, now = new Date()) {
  const clock = `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}`;
  if (moment.toDateString() === now.toDateString()) return clock;
  return `${localDay(moment, now)} ${clock}`;
}

/**
 * Formats the local day: `18 Nov`, with the year unless it is this year.
 * @param {Date} moment
 * @param {Date} [now]
 */
export function localDay(moment, now = new Date()) {
  const day = `${moment.getDate()} ${MONTHS[moment.getMonth()]}`;
  return moment.getFullYear() === now.getFullYear() ? day : `${day} ${moment.getFullYear()}`;
}

/**
 * Formats a moment in UTC, for the tooltip.
 * @param {Date} moment
 */
export function utcTime(moment) {
  return `${moment.toISOString().replace('T', ' ').replace(/\.\d+Z$/, '')} UTC`;
}

/**
 * Reads a moment of the API: RFC 3339 text, or the fleet's microseconds since 1970.
 * @param {string | number | null | undefined} value
 * @returns {Date | null}
 */
export function moment(value) {
  if (value === null || value === undefined) return null;
  const date = typeof value === 'number' ? new Date(value / 1000) : new Date(value);
  return Number.isNaN(date.getTime()) ? null : date;
}

/**
 * Makes a hostile name harmless to read: control characters and marks that turn the direction of text are shown, not
 * obeyed.
 * @param {string} text
 */
export function plainName(text) {
  let plain = '';
  for (const character of text) {
    const code = /** @type {number} */ (character.codePointAt(0));
    plain += isHidden(code) ? shownCode(code) : character;
  }
  return plain;
}

/**
 * Cuts a name after 60 characters.
 * @param {string} text
 */
export function shortName(text) {
  const characters = [...plainName(text)];
  return characters.length <= NAME_CHARS ? characters.join('') : `${characters.slice(0, NAME_CHARS - 1).join('')}…`;
}

/** @param {number} code */
function isHidden(code) {
  const turnsText = code === 0x61c || code === 0x200e || code === 0x200f || between(code, 0x202a, 0x202e);
  const isInvisible = between(code, 0x200b, 0x200d) || between(code, 0x2060, 0x206f) || code === 0xfeff;
  return code < 0x20 || between(code, 0x7f, 0x9f) || turnsText || isInvisible || between(code, 0x2028, 0x2029);
}

/**
 * @param {number} value
 * @param {number} low
 * @param {number} high
 */
function between(value, low, high) {
  return value >= low && value <= high;
}

/** @param {number} code */
function shownCode(code) {
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  return `⟨U+${code.toString(16).toUpperCase().padStart(4, '0')}⟩`;
}

/**
 * Makes a sentence of the API's begin with a capital letter.
 * @param {string} text
 */
export function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/**
 * Says how many there are of a thing: `1 request`, `214 requests`, `nothing` never.
 * @param {number} number
 * @param {string} one
 * @param {string} [many]
 */
export function several(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/**
 * @param {unknown} value
 * @returns {value is number}
 */
export function isNumber(value) {
  return typeof value === 'number' && Number.isFinite(value);
}
