/** Workers: drain, take back, thresholds of overload, a new one. */
import { html } from '../vendor/lit-html/lit-html.js';
import { at } from '../core/api.js';
import { several } from '../core/format.js';
import { name } from '../components/name.js';
import { openDialog, wholeNumber } from '../components/dialog.js';
import { make } from './change.js';

/** @typedef {import('../core/types.js').WorkerRow} WorkerRow */

/**
 * @param {string} pool
 * @param {WorkerRow} worker
 */
export function openDrain(pool, worker) {
  const isDrained = worker.state === 'drained';
  const path = at`/pools/${pool}/workers/${worker.name}`;
  const to = isDrained ? 'undrain' : 'drain';
  openDialog({
    title: html`${isDrained ? 'Take back' : 'Drain'} ${name(worker.name)} of ${name(pool)}`,
    consequences: () =>
      isDrained
        ? ['It takes requests again.']
        : [
            `It takes no new request. ${several(worker.in_flight, 'request')} in flight ${worker.in_flight === 1 ? 'ends by itself' : 'end by themselves'}; nothing is cut off.`,
            worker.slots ? `The pool has ${several(worker.slots, 'slot')} fewer until it is taken back.` : '',
          ],
    submit: isDrained ? 'Take it back' : 'Drain it',
    run: async () => {
      await make('POST', `${path}/${to}`, undefined, {
        label: isDrained ? `Taken back in ${pool}` : `Drained in ${pool}`,
        action: `worker.${to}`,
        object: pool,
        part: worker.name,
        subject: worker.name,
      });
      return null;
    },
  });
}

/**
 * @param {string} pool
 * @param {WorkerRow} worker
 */
export function openOverload(pool, worker) {
  const path = at`/pools/${pool}/workers/${worker.name}`;
  const before = thresholds(worker.engine?.overload_waiting ?? null, worker.engine?.overload_cache_thousandths ?? null);
  openDialog({
    title: html`Overload thresholds of ${name(worker.name)}`,
    fields: [
      { name: 'waiting', label: 'Requests in the engine’s own queue, above', type: 'number', value: text(before?.waiting), unit: 'requests' },
      { name: 'cache', label: 'Cache in use, above', type: 'number', min: 1, max: 1000, value: text(before?.cache_thousandths), unit: '‰' },
    ],
    consequences: () => ['Past a threshold the worker gets no new request until it is below again. Both empty: what the file says.'],
    submit: 'Set the thresholds',
    run: async (values) => {
      const overload = thresholds(wholeNumber(values.waiting), wholeNumber(values.cache));
      await make('PATCH', path, { overload }, { label: `Thresholds set in ${pool}`, action: 'worker.overload', object: pool, part: worker.name, subject: worker.name });
      return null;
    },
  });
}

/** @param {number | undefined} value */
function text(value) {
  return value === undefined ? '' : String(value);
}

/**
 * @param {number | null} waiting
 * @param {number | null} cache
 */
function thresholds(waiting, cache) {
  if (waiting === null && cache === null) return null;
  return { ...(waiting === null ? {} : { waiting }), ...(cache === null ? {} : { cache_thousandths: cache }) };
}

/**
 * @param {string} pool
 * @param {WorkerRow[]} workers
 */
export function openNewWorker(pool, workers) {
  openDialog({
    title: html`Add a worker to ${name(pool)}`,
    fields: [
      { name: 'name', label: 'Name', isRequired: true },
      { name: 'url', label: 'Address', isRequired: true, help: 'As in the file, such as http://10.0.0.7:8000' },
      { name: 'like', label: 'Like', type: 'select', choices: workers.map((worker) => [worker.name, worker.name]), value: workers[0]?.name ?? '', help: 'It gets this worker’s models and settings.' },
      { name: 'slots', label: 'Slots', type: 'number', min: 1, unit: 'requests in flight', help: 'Empty: as the other one.' },
    ],
    consequences: () => ['It takes requests as soon as its health check passes. It is not written into the file, but kept over restarts.'],
    submit: 'Add the worker',
    run: async (values) => {
      const slots = wholeNumber(values.slots);
      const body = { name: values.name.trim(), url: values.url.trim(), like: values.like, ...(slots ? { slots } : {}) };
      await make('POST', at`/pools/${pool}/workers`, body, { label: `Added to ${pool}`, action: 'worker.add', object: pool, part: body.name, subject: body.name });
      return null;
    },
  });
}
