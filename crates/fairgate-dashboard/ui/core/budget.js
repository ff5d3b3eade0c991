/** Budgets as numbers. */

/**
 * Returns which part of a budget is used, with what requests in flight have set aside; null without a limit.
 * @param {Api.Budget} budget
 */
export function usedPart(budget) {
  const isMoney = budget.unit === 'money';
  const limit = isMoney ? budget.limit_money : budget.limit_tokens;
  if (limit === null || limit === undefined) return null;
  const used = Number((isMoney ? budget.used_money : budget.used_tokens) ?? 0);
  const reserved = Number((isMoney ? budget.reserved_money : budget.reserved_tokens) ?? 0);
  return Number(limit) === 0 ? 1 : (used + reserved) / Number(limit);
}
