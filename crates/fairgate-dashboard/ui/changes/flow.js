/** Changes of a flow: its weight, its cap, and whether it is held. */
import { html } from '../vendor/lit-html/lit-html.js';
import { at, read } from '../core/api.js';
import { count, isNumber, percent, several } from '../core/format.js';
import { name } from '../components/name.js';
import { lockDialog, openDialog, wholeNumber } from '../components/dialog.js';
import { declaredReason } from '../components/declared.js';
import { make } from './change.js';

/** @typedef {import('../core/types.js').FlowRow} FlowRow */

/**
 * @typedef {object} FlowChange
 * @property {string} pool
 * @property {'tenant' | 'group' | 'class' | 'project'} by
 * @property {string} flow
 * @property {FlowRow} row
 * @property {FlowRow[]} siblings all rows of the same kind, of which those in the same group share with it
 * @property {string[]} [pools] names of all pools, for sentences
 */

/** Where the weight of a flow is kept: of a tenant or group in the directory, of a project in the fleet. */
const HOMES = {
  tenant: (/** @type {string} */ flow) => at`/tenants/${flow}`,
  group: (/** @type {string} */ flow) => at`/groups/${flow}`,
  project: (/** @type {string} */ flow) => at`/projects/${flow}`,
};

/**
 * Returns the part that a flow would be due with another weight, of those that want something now: its parent's part,
 * times its weight, divided by the sum of the weights beside it. Null if that cannot be said.
 * @param {FlowRow} row
 * @param {FlowRow[]} siblings
 * @param {number} weight
 */
export function dueWithWeight(row, siblings, weight) {
  const now = row.weight_share ?? row.due_share;
  if (!isNumber(now) || !row.weight) return null;
  const beside = siblings.filter((each) => each !== row && each.group === row.group && wantsSomething(each));
  const others = beside.reduce((sum, each) => sum + (each.weight ?? 0), 0);
  const parent = (now * (others + row.weight)) / row.weight;
  return Math.min(1, (parent * weight) / (others + weight));
}

/**
 * Opens a dialog of a flow. If the file declares the flow's tenant or group, its fields are turned off as soon as that is
 * known: the rows of a pool do not say it.
 * @param {FlowChange} flow
 * @param {import('../components/dialog.js').DialogSpec} spec
 */
async function openFlowDialog({ by, flow }, spec) {
  openDialog(spec);
  if (by !== 'tenant' && by !== 'group') return;
  // A flow that the directory does not know is not declared; whoever changes it hears so.
  const object = await read(HOMES[by](flow)).catch(() => null);
  lockDialog(spec, declaredReason(object));
}

/** @param {FlowRow} row */
function wantsSomething(row) {
  return row.waiting + row.in_flight > 0;
}

/** @param {FlowChange} change */
export function openWeight(change) {
  const { pool, by, flow, row, siblings } = change;
  const now = row.weight ?? null;
  void openFlowDialog(change, {
    title: html`Weight of ${name(flow)}`,
    fields: [
      { name: 'weight', label: 'Weight', type: 'number', min: 1, max: 1_000_000, isRequired: true, value: now ? String(now) : '', help: `Now ${count(now)}. A flow with twice the weight is due twice as much.` },
    ],
    consequences: (values) => {
      const weight = wholeNumber(values.weight);
      if (!weight) return [];
      const due = dueWithWeight(row, siblings, weight);
      const share = due === null ? 'Due changes at once' : `Due ${percent(row.weight_share ?? row.due_share)} → ${percent(due)} of the pool, of those that want something now`;
      return [`${share}; nothing in flight is cut off.`, wherePartOf(by, pool)];
    },
    submit: 'Set the weight',
    run: async (values) => {
      const weight = /** @type {number} */ (wholeNumber(values.weight));
      await setWeight(pool, by, flow, weight, now);
      return null;
    },
  });
}

/**
 * @param {string} by
 * @param {string} pool
 */
function wherePartOf(by, pool) {
  return by === 'class' ? `This pool alone: ${pool}, until a reload changes its policy.` : `Counts in every pool that shares by ${by}.`;
}

/**
 * @param {string} pool
 * @param {FlowChange['by']} by
 * @param {string} flow
 * @param {number} weight
 * @param {number | null} before
 */
async function setWeight(pool, by, flow, weight, before) {
  const label = `Weight ${count(before)} → ${count(weight)}`;
  if (by === 'class') {
    await make('POST', at`/pools/${pool}/weight`, { by, flow, weight }, { label, action: 'pool.weight', object: pool, part: flow, subject: flow });
    return;
  }
  await make('PATCH', HOMES[by](flow), { weight }, { label, action: `${by}.patch`, object: flow, subject: flow });
}

/** @param {FlowChange} change */
export function openCap(change) {
  const { pool, by, flow, row } = change;
  const now = row.cap ?? null;
  void openFlowDialog(change, {
    title: html`Cap of ${name(flow)}`,
    fields: [
      { name: 'cap', label: 'In flight at most', type: 'number', unit: 'requests', min: by === 'tenant' ? 1 : 0, max: 1_000_000, value: now === null ? '' : String(now), help: `Now ${now === null ? 'no cap' : count(now)}, ${count(row.in_flight)} in flight. Empty: no cap.` },
    ],
    consequences: (values) => {
      const cap = wholeNumber(values.cap);
      const over = cap === null ? 0 : Math.max(0, row.in_flight - cap);
      const ends = over > 0 ? `${several(over, 'request')} of it ${over === 1 ? 'ends by itself' : 'end by themselves'}; nothing is cut off.` : 'Nothing in flight is cut off.';
      const rest = row.waiting > 0 && cap !== null ? 'What is above the cap waits in its own queue; what it leaves goes to the others.' : '';
      const where = by === 'tenant' ? 'Counts in each pool whose policy shares by tenants.' : `This pool alone: ${pool}, until a reload changes its policy.`;
      return [ends, rest, where];
    },
    submit: 'Set the cap',
    run: async (values) => {
      await setCap(pool, by, flow, wholeNumber(values.cap));
      return null;
    },
  });
}

/**
 * @param {string} pool
 * @param {FlowChange['by']} by
 * @param {string} flow
 * @param {number | null} cap
 */
async function setCap(pool, by, flow, cap) {
  const label = cap === null ? 'Cap removed' : `Capped at ${count(cap)}`;
  if (by === 'tenant') {
    const path = at`/tenants/${flow}`;
    // The limits of a tenant are set as a whole, so the others are read first and sent back as they were.
    const { limits } = await read(path);
    await make('PATCH', path, { limits: { ...limits, in_flight: cap } }, { label, action: 'tenant.patch', object: flow, subject: flow });
    return;
  }
  await make('POST', at`/pools/${pool}/cap`, { by, flow, slots: cap }, { label, action: 'pool.cap', object: pool, part: flow, subject: flow });
}

/** @param {FlowChange} flow */
export function openHold({ pool, by, flow, row }) {
  const isHeld = row.state === 'held';
  openDialog({
    title: html`${isHeld ? 'Resume' : 'Hold'} ${name(flow)} in ${name(pool)}`,
    consequences: () =>
      isHeld
        ? ['It gets slots again, as its weight says.', `${several(row.waiting, 'request')} of it ${row.waiting === 1 ? 'waits' : 'wait'} now.`]
        : [
            'It gets no slot until it is resumed; new requests wait, and leave when their time in the queue is over.',
            `${several(row.in_flight, 'request')} in flight ${row.in_flight === 1 ? 'goes' : 'go'} on; nothing is cut off.`,
            `This pool alone: ${pool}.`,
          ],
    submit: isHeld ? 'Resume it' : 'Hold it',
    run: async () => {
      const to = isHeld ? 'resume' : 'hold';
      await make('POST', `${at`/pools/${pool}`}/${to}`, { by, flow }, {
        label: isHeld ? `Resumed in ${pool}` : `Held in ${pool}`,
        action: `pool.${to}`,
        object: pool,
        part: flow,
        subject: flow,
      });
      return null;
    },
  });
}
