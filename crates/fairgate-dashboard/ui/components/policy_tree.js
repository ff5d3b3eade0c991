/** The tree of a pool's policy: who shares with whom, by what weight. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { several } from '../core/format.js';
import { name } from './name.js';
import { number } from './number.js';

/** @type {Record<string, string>} */
const KINDS = {
  share: 'share by',
  drr: 'deficit round robin by',
  load: 'load over',
  bands: 'strict order by',
  partition: 'slots divided by',
  queue: 'queue',
};

/**
 * @typedef {object} PolicyNode
 * @property {string} kind
 * @property {string} [by]
 * @property {string} [order]
 * @property {PolicyFlow[]} [flows]
 * @property {PolicyFlow | null} [others] what applies to flows that are not listed
 * @property {number} [more] flows that are not listed
 *
 * @typedef {{ name: string | null, label?: string | null, weight?: number | null, cap?: number | null, held?: boolean, inside?: PolicyNode | null }} PolicyFlow
 */

/**
 * Draws a node with what is inside it.
 * @param {PolicyNode} node
 * @returns {unknown}
 */
export function policyTree(node) {
  const kind = `${KINDS[node.kind] ?? node.kind} ${node.by ?? node.order ?? ''}`;
  const flows = [...(node.flows ?? []), ...(node.others ? [node.others] : [])];
  return html`<div class="tree">
    <span class="kind">${kind}</span>
    ${flows.length ? html`<ul>${flows.map((flow) => flowView(node, flow))}</ul>` : nothing}
    ${node.more ? html`<p class="quiet">and ${several(node.more, 'more flow')}</p>` : nothing}
  </div>`;
}

/**
 * @param {PolicyNode} node
 * @param {PolicyFlow} flow
 * @returns {unknown}
 */
function flowView(node, flow) {
  return html`<li>
    ${flow.name === null ? html`<span class="quiet">all others</span>` : name(flow.label || flow.name)}
    ${flow.weight ? html`<span class="quiet">${node.kind === 'drr' ? 'quantum' : 'weight'} ${number(flow.weight)}</span>` : nothing}
    ${flow.cap ? html`<span class="quiet">cap ${number(flow.cap)}</span>` : nothing}
    ${flow.held ? html`<span class="state warn">‖ held</span>` : nothing}
    ${flow.inside && flow.inside.kind !== 'queue' ? policyTree(flow.inside) : nothing}
  </li>`;
}
