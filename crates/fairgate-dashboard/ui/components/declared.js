/** What the configuration file declares: only the file changes it, and the pages say so before somebody tries. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';

/** @typedef {{ declared?: Api.DeclaredIn | null }} MaybeDeclared a group, tenant or key */

/**
 * Says why something cannot be changed here; an empty text if it can.
 * @param {MaybeDeclared | null | undefined} object
 */
export function declaredReason(object) {
  const place = object?.declared;
  return place ? `Declared in ${place.file}, line ${place.line}: change it there and reload.` : '';
}

/**
 * Draws a mark beside what the file declares.
 * @param {MaybeDeclared | null | undefined} object
 */
export function declaredBadge(object) {
  const place = object?.declared;
  if (!place) return nothing;
  const file = place.file.split('/').at(-1);
  return html` <span class="state quiet declared" title=${declaredReason(object)}><span aria-hidden="true">▤</span> in ${file}:${place.line}</span>`;
}
