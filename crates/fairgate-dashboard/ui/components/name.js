/** Names from outside: tenants, keys, models, tasks. They are hostile until shown otherwise. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { NONE, plainName, shortName } from '../core/format.js';

/**
 * Draws a name as text, isolated from its surroundings, 60 characters of it; the rest is in the tooltip.
 * @param {string | null | undefined} text
 */
export function name(text) {
  if (text === null || text === undefined || text === '') return NONE;
  const short = shortName(text);
  const full = plainName(text);
  return html`<bdi dir="auto" class="name" title=${short === full ? nothing : full}>${short}</bdi>`;
}

/**
 * Draws a name that leads to a page.
 * @param {string | null | undefined} text
 * @param {string} address
 */
export function nameLink(text, address) {
  return text ? html`<a href=${address}>${name(text)}</a>` : NONE;
}
