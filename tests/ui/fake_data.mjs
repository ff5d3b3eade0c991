// The state of the fake gateway: a full pool with a loud tenant, hostile names, a fleet, a ledger of many rows.

/** Names that would do harm if any of them were taken for markup, for an address or for a direction. */
export const HOSTILE = [
  `<img src=x onerror="window.hacked = 1">`,
  `"><script>window.hacked = 2</script>`,
  `\u202eevil\u202c \u0007bell`,
  `javascript:window.hacked=3`,
  'x'.repeat(512),
];

const START = Date.now();

/** Fields of a flow in the unit of its pool. A pool that counts tokens has each of them under a second name too. */
const AMOUNTS = ['got', 'due', 'difference', 'bound', 'asked'];

/** Makes a row of a pool; what is not given is plain. */
function row(fields) {
  return {
    weight: 100, state: 'idle', due_share: null, got_share: null, asked: 0, asked_share: null, window_s: 60, promised: true,
    got: 0, due: 0, difference: 0, bound: 24_000, within_bound: true, in_flight: 0, waiting: 0,
    cap: null, expected_wait_ms: null, wait_p50_ms: null, wait_p95_ms: null, refused: 0, last_refusal: null, weight_share: null,
    ...fields,
  };
}

/** Returns what the API adds to amounts: their names in tokens, which are null if the pool counts worker time. */
export function withTokenNames(amounts, unit) {
  const names = AMOUNTS.map((field) => [`${field}_tokens`, unit === 'tokens' ? amounts[field] : null]);
  return { ...amounts, ...Object.fromEntries(names) };
}

function worker(fields) {
  return {
    name: 'w', state: 'up', reason: null, down_since: null, retry_at: null, source: 'file', address: 'http://127.0.0.1:9', in_flight: 0, prefill_tokens: 0, slots: 16,
    slots_reason: null, engine: null, cache: null, cache_size: null, tier: 0, quota: null, models: [], ...fields,
  };
}

export function pools() {
  const tenants = [
    row({ tenant: 'chat', group: 'prod', weight: 300, state: 'waiting', due_share: 0.476, got_share: 0.471, asked: 128_000, asked_share: 0.22, weight_share: 0.476, got: 912_000, due: 921_400, difference: -9400, in_flight: 9, waiting: 4, expected_wait_ms: 400, wait_p50_ms: 100, wait_p95_ms: 600 }),
    row({ tenant: 'search', group: 'prod', weight: 100, state: 'at_cap', due_share: 0.159, got_share: 0.155, asked: 96_000, asked_share: 0.16, weight_share: 0.159, got: 300_000, due: 304_000, difference: -4000, in_flight: 4, waiting: 12, cap: 4, expected_wait_ms: 2000, wait_p50_ms: 900, wait_p95_ms: 2100 }),
    row({ tenant: 'api-batch', group: 'batch', state: 'waiting', due_share: 0.159, got_share: 0.163, asked: 412_000, asked_share: 0.71, weight_share: 0.159, got: 309_000, due: 304_000, difference: 5000, in_flight: 12, waiting: 180, expected_wait_ms: 41_000, wait_p50_ms: 18_000, wait_p95_ms: 41_000, refused: 3, last_refusal: { code: 'queue_full', at: new Date(START - 40_000).toISOString() } }),
    row({ tenant: 'evals', group: 'batch', weight: 50, state: 'held', in_flight: 2, waiting: 6, asked_share: 0.03, asked: 17_000 }),
    row({ tenant: 'drifter', group: 'batch', weight: 50, state: 'waiting', promised: false, within_bound: false, difference: 60_000, in_flight: 1, waiting: 2 }),
    ...HOSTILE.map((tenant, index) => row({ tenant, group: HOSTILE[(index + 1) % HOSTILE.length], in_flight: 1, waiting: index, due_share: 0.01, got_share: 0.01, state: 'waiting' })),
  ];
  const groups = [
    row({ name: 'prod', weight: 500, state: 'waiting', due_share: 0.635, got_share: 0.626, in_flight: 13, waiting: 16 }),
    row({ name: 'batch', weight: 100, state: 'waiting', due_share: 0.365, got_share: 0.374, in_flight: 15, waiting: 188 }),
  ];
  const workers = [
    worker({ name: 'vllm-a', in_flight: 16, prefill_tokens: 12_000, engine: { kind: 'vllm', running: 16, waiting: 0, cache_used_thousandths: 810, cache_tokens: 400_000, overload_waiting: 4, overload_cache_thousandths: 950 }, cache: { input_tokens: 900_000, cached_tokens: 576_000, expected_tokens: 594_000 } }),
    worker({ name: 'vllm-c', state: 'broken', reason: 'connect: connection refused', down_since: new Date(START - 40_000).toISOString(), retry_at: new Date(START + 600_000).toISOString() }),
    worker({ name: HOSTILE[0], in_flight: 3 }),
  ];
  const hosted = worker({ name: 'openai', state: 'paused', reason: 'the provider answered 429 (it asked for 60 s)', in_flight: 6, slots: null, tier: 1, quota: { account: 'openai-main', requests_per_minute: 500, requests_from: 'header', tokens_per_minute: 200_000, tokens_from: 'header', paused_ms: 41_000, asked_ms: 60_000, out: null } });
  // Amounts of this one are microseconds of a full worker.
  const timed = [
    row({ tenant: 'chat', group: 'prod', state: 'waiting', due_share: 0.5, got_share: 0.52, asked: 41_000_000, asked_share: 0.6, weight_share: 0.5, got: 312_000_000, due: 310_800_000, difference: 1_200_000, bound: 4_000_000, in_flight: 4, waiting: 9 }),
    row({ tenant: 'search', group: 'prod', state: 'waiting', due_share: 0.5, got_share: 0.48, asked: 30_000_000, asked_share: 0.4, weight_share: 0.5, got: 309_600_000, due: 310_800_000, difference: -1_200_000, bound: 4_000_000, in_flight: 4, waiting: 3 }),
  ];
  const base = { unit: 'tokens', window_s: 60, groups: [], classes: [], projects: [], tenants_omitted: 0, wait_p50_ms: null, wait_p95_ms: null, granted: 0, refused: 0 };
  const all = [
    { ...base, pool: 'llama', algorithm: 'share by group, share by tenant', slots: 32, in_flight: 32, waiting: 214, granted: 900, refused: 3, wait_p50_ms: 400, wait_p95_ms: 38_000, tenants, groups, workers },
    { ...base, pool: 'gpt', algorithm: 'share by tenant', slots: 24, in_flight: 6, waiting: 0, granted: 90, wait_p50_ms: 0, wait_p95_ms: 100, tenants: [row({ tenant: 'chat', group: 'prod', in_flight: 6, due_share: 1, got_share: 1 })], workers: [hosted, worker({ name: 'azure', slots: 24, tier: 1 })] },
    { ...base, pool: 'timed', unit: 'worker_time', algorithm: 'share by tenant', slots: 8, in_flight: 8, waiting: 12, granted: 40, wait_p50_ms: 900, wait_p95_ms: 2000, tenants: timed, workers: [worker({ name: 'vllm-t', in_flight: 8, slots: 8 })] },
  ];
  return all.map((pool) => ({ ...pool, ...Object.fromEntries(['tenants', 'groups'].map((list) => [list, pool[list].map((each) => withTokenNames(each, pool.unit))])) }));
}

/** Returns a history of `points` steps with a gap in it. */
export function history(pool, by, step, points, only) {
  const wave = (base, swing) => Array.from({ length: points }, (_, i) => (i === Math.floor(points / 3) ? null : Math.round(base + swing * Math.sin(i / 6))));
  const amounts = (size) => ({ got: wave(size, size / 6), due: wave(size * 1.02, size / 12), difference: wave(size / 40, size / 4), bound: wave(size / 2.5, 0), asked: wave(size * 2, size / 3) });
  const scale = pool.unit === 'tokens' ? 1 : 500;
  const flow = (name, size) => ({
    flow: name, promised: true, ...withTokenNames(amounts(size * scale), pool.unit), in_flight: wave(8, 3), waiting: wave(size / 100, size / 200),
    refused: wave(0, 0), wait_p50_ms: wave(400, 100), wait_p95_ms: wave(4000, 1500),
  });
  const rows = pool[{ tenant: 'tenants', group: 'groups', class: 'classes', project: 'projects' }[by] ?? 'tenants'];
  const flows = rows.map((each, index) => flow(each.tenant ?? each.name, 9000 / (index + 1)));
  const start = new Date(Math.floor(Date.now() / 1000 / step) * step * 1000 - points * step * 1000).toISOString();
  return {
    pool: pool.pool, unit: pool.unit, by, step_s: step, start, points, kept_since: start,
    all: { slots: wave(pool.slots, 0), in_flight: wave(pool.in_flight, 2), waiting: wave(pool.waiting, pool.waiting / 3), granted: wave(60, 9), refused: wave(0, 0), wait_p50_ms: wave(400, 90), wait_p95_ms: wave(20_000, 9000) },
    flows: only ? flows.filter((each) => each.flow === only) : flows,
    others: null,
  };
}

const MODELS = ['llama-3.1-8b', 'gpt-5', HOSTILE[1]];

/** Returns row `index` of the ledger, 0 is the latest. */
export function attempt(index) {
  const refused = index % 9 === 4;
  const waited = (index * 7919) % 40_000_000;
  return {
    request: `req-${String(index).padStart(7, '0')}`, attempt: 1, last: true, started_at: new Date(START - index * 800).toISOString(),
    group: 'prod', tenant: ['chat', 'search', 'api-batch', HOSTILE[0]][index % 4], key: 'k-1', agent: null, session: null, route: '/v1/chat/completions',
    stream: true, model: MODELS[index % 3], pool: 'llama', worker: refused ? null : 'vllm-a', estimate_tokens: 1310, input_tokens: 900,
    cached_tokens: 0, output_tokens: 304, charged_tokens: refused ? 0 : 1204, provider_tokens: 1204, money: '0.0012', price: null, tier: 0,
    class: null, project: null, task: null, epoch: null, usage: 'reported', waited_us: refused ? 0 : waited, first_token_us: refused ? null : waited + 210_000,
    total_us: refused ? 900 : waited + 1_690_000, status: refused ? 429 : 200, outcome: refused ? 'refused' : 'completed', code: refused ? 'queue_full' : null, brownout: false, occupied: 0,
  };
}

export function directory() {
  const tenant = (name, group, fields = {}) => ({ name, group, weight: 100, disabled: false, requires: [], created_at: new Date(START).toISOString(), limits: {}, declared: null, ...fields });
  const declared = (line) => ({ file: '/etc/fairgate/fairgate.yaml', line });
  return {
    groups: ['prod', 'batch', 'kept'].map((name) => ({ name, weight: name === 'prod' ? 500 : 100, created_at: new Date(START).toISOString(), limits: {}, declared: name === 'kept' ? declared(9) : null })),
    tenants: [tenant('chat', 'prod', { weight: 300 }), tenant('search', 'prod', { limits: { in_flight: 4 } }), tenant('api-batch', 'batch'), tenant('evals', 'batch', { weight: 50 }), tenant('gone', 'batch', { disabled: true }), tenant('in-file', 'kept', { declared: declared(12) }), ...HOSTILE.map((name) => tenant(name, 'batch'))],
    keys: [
      { id: 'k-1', tenant: 'api-batch', name: 'nightly-eval', hint: 'fg-…3f', weight: 100, limits: {}, created_at: new Date(START).toISOString(), revoked_at: null, expires_at: null, last_used_at: new Date(START - 2000).toISOString() },
      { id: 'k-3', tenant: 'in-file', name: 'ci', hint: 'fg-…77', weight: 100, limits: {}, created_at: new Date(START).toISOString(), revoked_at: null, expires_at: null, last_used_at: null, declared: declared(17) },
      { id: 'k-2', tenant: 'api-batch', name: HOSTILE[0], hint: 'fg-…91', weight: 100, limits: {}, created_at: new Date(START).toISOString(), revoked_at: null, expires_at: null, last_used_at: null },
    ],
  };
}

export function budgets(owner, scope = 'tenant') {
  const base = { scope, owner, tier: 'any', currency: null, resets_at: new Date(START + 11 * 3600_000).toISOString(), limit_money: null, used_money: null, reserved_money: null, left_money: null };
  return [
    { ...base, period: 'day', unit: 'tokens', limit_tokens: 5_000_000, used_tokens: 3_050_000, reserved_tokens: 12_000, left_tokens: 1_938_000 },
    { ...base, period: 'month', unit: 'money', currency: 'USD', resets_at: new Date(START + 11 * 86_400_000).toISOString(), limit_tokens: null, used_tokens: null, reserved_tokens: null, left_tokens: null, limit_money: '2000', used_money: '240.5', reserved_money: '0', left_money: '1759.5' },
  ];
}

/** Budgets of tenants and groups of which at least this part is used. */
export function spentBudgets(percent) {
  const [day, month] = budgets('api-batch');
  const spent = { ...day, used_tokens: 5_000_000, reserved_tokens: 0, left_tokens: 0 };
  const nearly = { ...month, scope: 'group', owner: 'batch', used_money: '1860', left_money: '140' };
  return [spent, nearly].filter((each) => percent <= (each === spent ? 100 : 93));
}

export function tasks() {
  const us = START * 1000;
  const task = (id, state, fields = {}) => ({ id, state, title: `Work on ${id}`, project: 'web', agent: null, created_at: us, ended_at: null, estimate: 4000, priority: 0, reason: null, resume_after: null, retries: 0, retries_max: 3, used: 1200, ...fields });
  return [
    task('web-199', 'WAITING_INPUT', { question: `Which region? ${HOSTILE[0]}` }),
    task('web-94', 'IN_PROGRESS', { agent: 'ada' }),
    task('web-95', 'ASSIGNED', { agent: 'dan', title: HOSTILE[1] }),
    ...Array.from({ length: 24 }, (_, i) => task(`web-${100 + i}`, 'READY')),
    task('web-12', 'PAUSED', { resume_after: us + 41_000_000 }),
    task('web-7', 'BLOCKED'),
    task('web-6', 'FAILED', { reason: 'cancelled' }),
    task('web-93', 'COMPLETED'),
  ];
}

export function usage(by, split) {
  const names = { day: Array.from({ length: 7 }, (_, i) => new Date(START - i * 86_400_000).toISOString().slice(0, 10)), tenant: ['chat', 'search', 'api-batch', HOSTILE[0]], key: ['k-1', 'k-2'], outcome: ['completed', 'refused'], model: MODELS };
  const list = names[by] ?? ['a', 'b'];
  const parts = split ? (names[split] ?? ['a', 'b']) : [null];
  const rows = list.flatMap((name, i) => parts.map((part, j) => ({
    name, split: part, requests: 4000 / (i + 1 + j), failed: 12, input_tokens: 900_000, cached_tokens: 200_000, output_tokens: 300_000, charged_tokens: Math.round(4_400_000 / (i + 1 + j)), got_share: 0.1,
    provider_tokens: 1_200_000, money: (120.11 / (i + 1 + j)).toFixed(6), waited_mean_us: 800_000, waited_p50_us: 400_000, waited_p95_us: 6_000_000, waited_max_us: 60_000_000, first_token_mean_us: 200_000,
  })));
  const total = rows.reduce((sum, each) => sum + each.charged_tokens, 0);
  for (const each of rows) Object.assign(each, { requests: Math.round(each.requests), got_share: each.charged_tokens / total });
  return { by, split: split || null, since: new Date(START - 7 * 86_400_000).toISOString(), until: new Date(START).toISOString(), currency: 'USD', omitted: 0, rows };
}
