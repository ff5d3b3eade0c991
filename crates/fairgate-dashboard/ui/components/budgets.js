/** Budgets: how much of each is used, and when it begins anew. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { count, money, percent } from '../core/format.js';
import { usedPart } from '../core/budget.js';
import { fillBar } from './bars.js';
import { name } from './name.js';
import { when } from './number.js';

/**
 * Draws budgets, the fullest first: that one binds.
 * @param {Api.Budget[]} budgets
 */
export function budgetList(budgets) {
  if (budgets.length === 0) return html`<p class="empty">No budget: nothing ends with a day or a month.</p>`;
  const sorted = [...budgets].sort((a, b) => (usedPart(b) ?? 0) - (usedPart(a) ?? 0));
  return html`<ul class="needs budgets">${sorted.map((budget, index) => budgetView(budget, index === 0 && sorted.length > 1))}</ul>`;
}

/**
 * @param {Api.Budget} budget
 * @param {boolean} bindsFirst
 */
function budgetView(budget, bindsFirst) {
  const used = usedPart(budget) ?? 0;
  const isMoney = budget.unit === 'money';
  const amount = (/** @type {import('../core/format.js').MaybeNumber} */ tokens, /** @type {string | null | undefined} */ text) => (isMoney ? money(text, budget.currency) : `${count(tokens)} tokens`);
  const tier = budget.tier === 'hosted' ? ' on hosted workers' : '';
  return html`<li data-budget="${budget.scope}-${budget.unit}-${budget.period}">
    <span>${budget.scope} ${name(budget.owner)}: ${amount(budget.used_tokens, budget.used_money)} of ${amount(budget.limit_tokens, budget.limit_money)} a ${budget.period}${tier}${bindsFirst ? html`, <strong>this one binds first</strong>` : nothing}</span>
    <span class="quiet">${percent(used)}, anew ${when(budget.resets_at)}</span>
    <span>${fillBar(Math.round(used * 1000), 1000, '‰ used')}</span>
  </li>`;
}
