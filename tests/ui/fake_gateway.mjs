// A fake gateway for what a real one would take long to show: hostile names everywhere, 100 000 ended requests, a lost
// connection. It serves the pages from the working tree with the headers of the real one.
import { createServer } from 'node:http';
import { readFile, readdir } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { attempt, budgets, directory, history, pools, spentBudgets, tasks, usage, withTokenNames } from './fake_data.mjs';

const UI = fileURLToPath(new URL('../../crates/fairgate-dashboard/ui/', import.meta.url));
const HEADERS = fileURLToPath(new URL('../../crates/fairgate-dashboard/src/headers.rs', import.meta.url));
const TYPES = { html: 'text/html', js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml' };

/** Reads the policy out of the Rust source, so that the fake's cannot drift from the real one. */
async function contentSecurityPolicy() {
  const source = await readFile(HEADERS, 'utf8');
  const [, text] = /CONTENT_SECURITY_POLICY: &str = "([^"]*)"/s.exec(source);
  return text.replace(/\\\n\s*/g, '');
}

/**
 * Starts a fake gateway on a free port.
 * @param {{ rows?: number, port?: number, isFrozen?: boolean, names?: Map<string, string>, isStill?: boolean }} [options]
 *   number of ended requests; whether the files are read once and kept in memory, as the gateway does, or again for each
 *   request; other names for some, and numbers that stand still, for pictures
 */
export async function startFake({ rows = 100_000, port = 0, isFrozen = false, names = new Map(), isStill = false } = {}) {
  const pages = { csp: await contentSecurityPolicy(), files: isFrozen ? await allFiles() : new Map() };
  const state = { pools: pools(), directory: directory(), tasks: tasks(), audit: [], held: [], health: { ready: true, reasons: [], degraded: [], warnings: [] }, streams: new Set(), session: 1, calls: [], isDown: false, rows };
  const server = createServer((request, response) => {
    if (state.isDown) return request.socket.destroy();
    response.names = names;
    void handle(state, pages, request, response).catch((error) => {
      response.writeHead(500).end(String(error.stack));
    });
  });
  await new Promise((done) => server.listen(port, '127.0.0.1', done));
  const ticking = setInterval(() => state.streams.forEach((stream) => isStill || stream.tick()), 1000);
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    state,
    close() {
      clearInterval(ticking);
      server.closeAllConnections();
      server.close();
    },
    /** Drops every connection and takes no new one. */
    down(isDown) {
      state.isDown = isDown;
      if (isDown) server.closeAllConnections();
    },
  };
}

async function handle(state, pages, request, response) {
  const url = new URL(request.url, 'http://gateway');
  const path = url.pathname;
  if (path === '/blank') return response.writeHead(200, { 'content-type': 'text/html' }).end('<!doctype html><title>blank</title><p>blank</p>');
  if (path === '/readyz') return json(response, 200, state.health);
  if (!path.startsWith('/api/v1/')) return serveFile(pages, path, response);
  let body = '';
  for await (const chunk of request) body += chunk;
  const call = { method: request.method, path: path.slice('/api/v1'.length), query: url.searchParams, body: body ? JSON.parse(body) : null, headers: request.headers };
  state.calls.push(call);
  const side = call.headers['x-fairgate-session'] ?? call.query.get('session') ?? 'admin';
  if (call.path === '/session') return session(state, call, side, response);
  if (!isSignedIn(state, call, side)) return failure(response, 401, 'no_session', 'You are not signed in.');
  if (call.method !== 'GET' && !call.headers['x-fairgate-session']) return failure(response, 403, 'cross_site', 'A change needs our origin and header.');
  if (call.path === '/events') return events(state, request, response);
  const answer = call.method === 'GET' ? get(state, call) : change(state, call);
  if (answer === undefined) return failure(response, 404, 'not_found', `there is no ${call.path}`);
  if (answer.status) return failure(response, answer.status, answer.code, answer.message, answer.field);
  return json(response, 200, answer);
}

/** Reads all files of the pages, by their paths. */
async function allFiles() {
  const entries = await readdir(UI, { recursive: true, withFileTypes: true });
  const paths = entries.filter((entry) => entry.isFile()).map((entry) => `${entry.parentPath}/${entry.name}`.replaceAll('//', '/'));
  return new Map(await Promise.all(paths.map(async (path) => [path.slice(UI.length), await readFile(path)])));
}

async function serveFile({ csp, files }, path, response) {
  const file = path === '/' ? 'index.html' : path === '/me' ? 'me.html' : path.replace(/^\/assets\//, '');
  try {
    const bytes = files.get(file) ?? (await readFile(UI + file));
    const type = TYPES[file.split('.').pop()] ?? 'text/plain';
    response.writeHead(200, { 'content-type': `${type}; charset=utf-8`, 'content-security-policy': csp, 'x-content-type-options': 'nosniff', 'cache-control': 'no-cache' });
    response.end(bytes);
  } catch {
    response.writeHead(404).end('no such file');
  }
}

function json(response, status, body) {
  response.writeHead(status, { 'content-type': 'application/json' }).end(textOf(response, body));
}

/** Returns JSON in which each name is the one that the pages shall show. */
function textOf(response, body) {
  const inText = (name) => JSON.stringify(name).slice(1, -1);
  return [...response.names].reduce((text, [name, shown]) => text.replaceAll(inText(name), inText(shown)), JSON.stringify(body));
}

function failure(response, status, code, message, field) {
  json(response, status, { error: { code, message, field } });
}

function session(state, call, side, response) {
  const info = side === 'me'
    ? { kind: 'tenant', name: 'web', actor: null, tenant: 'search', group: 'prod', key: 'k-9', may_write: true }
    : { kind: 'admin', name: 'on-call', actor: 'admin:on-call', tenant: null, group: null, key: null, may_write: true };
  if (call.method === 'POST') {
    if (call.body.token !== 'right') return failure(response, 401, 'invalid_token', 'This token is not known.');
    response.setHeader('set-cookie', `${side}=${state.session}; Path=/; HttpOnly; SameSite=Strict`);
  } else if (call.method === 'DELETE') {
    return response.writeHead(204, { 'set-cookie': `${side}=; Path=/; Max-Age=0` }).end();
  } else if (!isSignedIn(state, call, side)) return failure(response, 401, 'no_session', 'You are not signed in.');
  return json(response, 200, { ...info, gateway: 'gw-1', version: '0.1.0', expires_at: new Date(Date.now() + 43_200_000).toISOString() });
}

/** A cookie counts until `state.session` is raised, which ends all sessions. */
function isSignedIn(state, call, side) {
  return (call.headers.cookie ?? '').split('; ').includes(`${side}=${state.session}`);
}

function events(state, request, response) {
  response.writeHead(200, { 'content-type': 'text/event-stream' });
  const send = (kind, data) => response.write(`event: ${kind}\ndata: ${textOf(response, data)}\n\n`);
  send('live', { at: new Date().toISOString(), full: true, pools: state.pools });
  const stream = {
    send,
    // A row that jumps about: its place on the page must not.
    tick() {
      const [pool] = state.pools;
      pool.tenants[0].waiting = 4 + Math.floor(Math.random() * 300);
      send('live', { at: new Date().toISOString(), full: false, pools: [{ pool: 'llama', waiting: pool.waiting, tenants: [pool.tenants[0]] }] });
    },
  };
  state.streams.add(stream);
  request.on('close', () => state.streams.delete(stream));
}

/** Tells every watcher the whole state again. */
function tellAll(state) {
  for (const stream of state.streams) stream.send('live', { at: new Date().toISOString(), full: true, pools: state.pools });
}

function get(state, { path, query }) {
  const part = path.split('/').slice(1).map(decodeURIComponent);
  const dir = state.directory;
  const pool = part[0] === 'pools' && part[1] ? state.pools.find((each) => each.pool === part[1]) : null;
  switch (part[0]) {
    case 'fairshare': return { at: new Date().toISOString(), pools: state.pools.map((each) => ({ ...each, tenants: query.get('all') ? [...each.tenants, { ...each.tenants[0], tenant: 'sleeper', state: 'never_seen', waiting: 0, in_flight: 0 }] : each.tenants })) };
    case 'pools': return poolAnswer(state, pool, part, query);
    case 'requests': return part[2] === 'journal' ? { story: ['It waited 0.41 s: the pool was full.', 'It went when a slot was free, because chat had had less for its weight.'], history: null } : part[1] ? oneRequest(part[1]) : { items: liveRequests(query), omitted: 0 };
    case 'attempts': return attempts(state, query);
    case 'fleet': return fleet(state);
    case 'tasks': return part[1] ? task(state, part) : { items: state.tasks.filter((each) => !query.get('state') || each.state === query.get('state')), next: null };
    case 'groups': return part[2] === 'budgets' ? { items: budgets(part[1], 'group') } : part[1] ? dir.groups.find((each) => each.name === part[1]) : { items: dir.groups, next: null };
    case 'tenants': return part[2] === 'budgets' ? { items: budgets(part[1]) } : part[1] ? dir.tenants.find((each) => each.name === part[1]) : { items: dir.tenants, next: null };
    case 'keys': return part[1] ? dir.keys.find((each) => each.id === part[1]) : { items: dir.keys.filter((each) => !query.get('tenant') || each.tenant === query.get('tenant')), next: null };
    case 'hosted': return { limits: {}, budgets: [{ ...budgets('*', 'hosted')[1], tier: 'hosted', used_money: '1990' }] };
    case 'budgets': return { items: spentBudgets(Number(query.get('used_percent') ?? 90)) };
    case 'usage': return usage(query.get('by') ?? 'day', query.get('split'));
    case 'audit': return { items: state.audit.filter((each) => ['subject', 'action'].every((field) => !query.get(field) || each[field] === query.get(field))).slice(0, Number(query.get('limit') ?? 100)), next: null };
    case 'config': return { settings: [{ path: 'listen', value: '127.0.0.1:8080', secret: null, needs_restart: true }, { path: 'admin.token', value: null, secret: 'environment variable FAIRGATE_ADMIN_TOKEN', needs_restart: false }, { path: 'pools.llama.queue_timeout', value: '60s', secret: null, needs_restart: false }] };
    case 'me': return me(state, part[1], query);
    default: return undefined;
  }
}

function poolAnswer(state, pool, part, query) {
  const setting = (each) => ({ name: each.pool, algorithm: each.algorithm, capacity: each.slots, in_flight: each.in_flight, queued: each.waiting, queued_max: 230, held: state.held, unit: each.unit, journal: { status: 'writing', error: null, events_lost: 0, gaps: 0 }, workers: each.workers });
  if (!part[1]) return { items: state.pools.map(setting) };
  if (!pool) return undefined;
  if (part[2] === 'workers') return { items: pool.workers };
  if (part[2] === 'history') {
    const step = Number(query.get('step') ?? 5);
    const [, amount, unit] = /^(\d+)([mh])$/.exec(query.get('since') ?? '1h');
    const seconds = Number(amount) * (unit === 'h' ? 3600 : 60);
    return history(pool, query.get('by') ?? 'tenant', step, Math.round(seconds / step), query.get('flow'));
  }
  if (part[2] === 'policy') return { pool: pool.pool, root: { kind: 'share', by: 'group', more: 0, others: { name: null, weight: 100, cap: null, held: false, inside: { kind: 'queue', order: 'fcfs' } }, flows: [{ name: 'prod', weight: 500, cap: null, held: false, inside: { kind: 'share', by: 'tenant', more: 3, flows: pool.tenants.slice(0, 6).map((each) => ({ name: each.tenant, weight: each.weight, cap: each.cap, held: each.state === 'held', inside: { kind: 'queue', order: 'priority' } })) } }] } };
  return setting(pool);
}

function liveRequests(query) {
  return Array.from({ length: 240 }, (_, i) => ({ id: `req-live-${i}`, pool: 'llama', tenant: i % 5 ? 'api-batch' : 'chat', group: 'batch', state: i < 32 ? 'in_flight' : 'waiting', submitted_at: new Date(Date.now() - i * 300).toISOString(), waited_us: i * 300_000, in_flight_us: i < 32 ? 1_000_000 : null, unit: 'tokens', cost: 1300, cost_uncached: 1300, cost_tokens: 1300, cost_uncached_tokens: 1300, priority: 0, requires: [], class: null, worker: i < 32 ? 'vllm-a' : null, expected_wait_ms: 4000 })).filter((each) => !query.get('tenant') || each.tenant === query.get('tenant'));
}

function oneRequest(id) {
  if (id === 'req-timed') return timedRequest(id);
  if (id.startsWith('req-live')) {
    return { id, state: 'waiting', summary: 'The pool is full; 9 go before you; about 4 s; others have had less for their weight.', expected_wait_ms: 4000, story: ['The pool is full.', 'tenant api-batch has had more for its weight than chat.'], request: liveRequests(new URLSearchParams())[40], attempts: [], waiting: { ahead: [], ahead_in_queue: 3, grants_ahead: 9, expected_wait_ms: 4000, levels: [{ by: 'tenant', flow: 'api-batch', readiness: 'ready', waiting: 180, in_flight: 12, ...withTokenNames({ got: 9000, due: 8800, difference: 200, bound: 24_000 }, 'tokens') }] } };
  }
  const index = Number(id.slice(4));
  if (!id.startsWith('req-') || Number.isNaN(index)) return undefined;
  return { id, state: 'ended', summary: 'It has ended: 200 after 2.1 s.', story: ['It has ended; its rows in the ledger tell how.'], request: null, waiting: null, attempts: [attempt(index)] };
}

/** A request of the pool that counts worker time. */
function timedRequest(id) {
  const request = { ...liveRequests(new URLSearchParams())[40], id, pool: 'timed', unit: 'worker_time', cost: 2_100_000, cost_uncached: 2_100_000, cost_tokens: null, cost_uncached_tokens: null };
  const amounts = withTokenNames({ got: 312_000_000, due: 310_800_000, difference: 1_200_000, bound: 4_000_000 }, 'worker_time');
  const levels = [{ by: 'tenant', flow: 'chat', readiness: 'ready', waiting: 9, in_flight: 4, ...amounts }];
  return { id, state: 'waiting', summary: 'The pool is full; 2 go before you.', expected_wait_ms: 900, story: ['The pool is full.'], request, attempts: [], waiting: { ahead: [], ahead_in_queue: 2, grants_ahead: 2, expected_wait_ms: 900, levels } };
}

function attempts(state, query) {
  const limit = Number(query.get('limit') ?? 100);
  if (query.get('status') && !/^[1-5](\d\d|xx)$/.test(query.get('status'))) return { status: 400, code: 'invalid_query', message: 'status: write 429 or 4xx', field: 'status' };
  const from = Number(query.get('cursor') ?? 0);
  if (query.get('since') || query.get('request')) return { items: [], next: null, stopped: null };
  const end = Math.min(state.rows, from + limit);
  const items = Array.from({ length: end - from }, (_, i) => attempt(from + i)).filter((each) => ['tenant', 'code', 'model'].every((field) => !query.get(field) || each[field] === query.get(field)) && (!query.get('status') || String(each.status) === query.get('status')));
  return { items, next: end < state.rows ? String(end) : null, stopped: null };
}

function fleet(state) {
  const us = Date.now() * 1000;
  return {
    at: us, window_s: 86_400, used: 13_030, reserved: 354, budget: null, connected: ['ben'],
    projects: [{ id: 'web', tenant: 'chat', status: 'ACTIVE', weight: 3, due_share: 0.75, got_share: 0.742, used: 9669, reserved: 354, budget: null, ready: 24, running: 2, concurrency: 4, tasks: {} }, { id: 'docs', tenant: 'chat', status: 'PAUSED', weight: 1, due_share: 0.25, got_share: 0.258, used: 3361, reserved: 0, budget: 100_000, ready: 0, running: 0, concurrency: 2, tasks: {} }],
    agents: [{ id: 'ada', state: 'ACTIVE', task: 'web-94', last_seen: us - 2_000_000, labels: ['gpu'], created_at: us, type: 'coder', token_hint: '…a1', reports_tokens: true }, { id: 'ben', state: 'ACTIVE', task: null, last_seen: us - 3_000_000, labels: [], created_at: us, type: 'coder', token_hint: '…b2', reports_tokens: true }],
    running: state.tasks.filter((each) => ['ASSIGNED', 'IN_PROGRESS'].includes(each.state)),
    waiting: state.tasks.filter((each) => each.state === 'READY').map((each) => ({ task: each.id, state: each.state, code: 'no_agent', sentence: 'It takes the first agent that comes: no agent is there.', facts: [] })),
  };
}

function task(state, part) {
  const found = state.tasks.find((each) => each.id === part[1]);
  if (!found) return undefined;
  if (part[2] === 'why') return { task: found.id, state: found.state, code: 'x', sentence: `${found.id} is ${found.state.toLowerCase()}: ${found.question ?? 'nobody has taken it yet.'}`, facts: [{ name: 'ahead', value: '3' }] };
  if (part[2] === 'log') return { text: 'cloning…\nrunning tests…\n', first_byte: 0, next_byte: 30, epoch: 1, ended: false, dropped_bytes: 0 };
  return { ...found, agent_ms: 41_000, calls: 3, charged: 1200, epoch: 1, money: '0.01', needs: { 'web-93': 'COMPLETED' }, needed_by: [], prompt: 'Do it.', put_offs: 0, question: found.question ?? null, answer: found.answer ?? null, history: [{ at: found.created_at, actor: 'admin', from: 'DEFINED', to: 'READY', epoch: 0, reason: null }] };
}

function me(state, what, query) {
  const mine = state.pools[0].tenants[1];
  if (what === 'attempts') return attempts(state, new URLSearchParams({ ...Object.fromEntries(query), tenant: 'search' }));
  if (what === 'usage') return usage('day', null);
  if (what === 'history') {
    const all = history(state.pools[0], 'tenant', 60, 60, 'search');
    return { tenant: 'search', step_s: 60, start: all.start, points: 60, kept_since: all.start, pools: [{ pool: 'llama', ...all.flows[0] }] };
  }
  return {
    tenant: 'search', group: 'prod', key: 'k-9', models: ['llama-3.1-8b'], classes: ['interactive'], key_limits: { limits: {} }, tenant_limits: { limits: {}, requests_left: 41, tokens_left: 9000 },
    budgets: [...budgets('search'), ...budgets('prod', 'group')],
    pools: [{ ...mine, pool: 'llama', summary: '12 of your requests wait, the next about 2 s: you have 4 in flight, as many as your cap allows.', why: 'Your weight is 100 of 400 in prod; 4 tenants want something now.', slots: 32, state: mine.state, unit: 'tokens', window_s: 60, waiting: mine.waiting, in_flight: mine.in_flight, cap: 4, expected_wait_ms: 2000, wait_p50_ms: 900, wait_p95_ms: 2100, classes: [] }],
  };
}

function audit(state, action, subject, before, after) {
  const entry = { id: state.audit.length + 1, at: new Date().toISOString(), actor: 'admin:on-call', action, subject, before, after, undo: after !== null && (before !== null || action === 'worker.add') };
  state.audit.unshift(entry);
  for (const stream of state.streams) stream.send('audit', entry);
}

/** Makes the inverse of a change, as the gateway does: what it had changed is set back, if nobody changed it since. */
function undone(state, entry) {
  const { action, subject, before, after } = entry;
  if (action === 'tenant.patch') {
    const now = state.directory.tenants.find((each) => each.name === subject);
    const fields = Object.keys(before).filter((field) => JSON.stringify(before[field]) !== JSON.stringify(after[field]));
    if (fields.some((field) => JSON.stringify(now[field]) !== JSON.stringify(after[field]))) return { status: 409, code: 'changed_since', message: 'somebody has changed it since' };
    change(state, { method: 'PATCH', path: `/tenants/${encodeURIComponent(subject)}`, body: Object.fromEntries(fields.map((field) => [field, before[field]])) });
  } else if (action.startsWith('pool.')) {
    change(state, { method: 'POST', path: `/pools/${subject}/${before.held ? 'hold' : 'resume'}`, body: { by: before.by, flow: before.flow } });
  } else if (action === 'project.patch') {
    change(state, { method: 'PATCH', path: `/projects/${subject}`, body: { weight: before.weight } });
  } else if (action === 'worker.add') {
    const pool = state.pools.find((each) => each.pool === subject);
    pool.workers = pool.workers.filter((each) => each.name !== after.name);
    tellAll(state);
  } else if (action === 'worker.overload') {
    change(state, { method: 'PATCH', path: `/pools/${subject}/workers/${before.worker}`, body: { overload: before.overload } });
  } else if (action.startsWith('task.')) {
    change(state, { method: 'POST', path: `/tasks/${subject}/actions`, body: { action: action === 'task.pause' ? 'resume' : 'pause' } });
  } else {
    change(state, { method: 'POST', path: `/pools/${subject}/workers/${before.worker}/${before.drained ? 'drain' : 'undrain'}` });
  }
  return { undone: entry.id, action, subject };
}

function change(state, { method, path, body }) {
  const part = path.split('/').slice(1).map(decodeURIComponent);
  const dir = state.directory;
  if (method === 'PATCH' && part[0] === 'tenants') {
    const found = dir.tenants.find((each) => each.name === part[1]);
    if (body.weight === 13) return { status: 422, code: 'invalid', message: 'weight: 13 is refused in this test', field: 'weight' };
    const before = structuredClone(found);
    Object.assign(found, body);
    const live = state.pools[0].tenants.find((each) => each.tenant === part[1]);
    if (live) Object.assign(live, { weight: found.weight, cap: found.limits.in_flight ?? null, state: found.limits.in_flight ? 'at_cap' : 'waiting' });
    audit(state, 'tenant.patch', part[1], before, structuredClone(found));
    tellAll(state);
    return found;
  }
  if (part[0] === 'pools' && ['hold', 'resume'].includes(part[2])) {
    const held = part[2] === 'hold';
    state.held = held ? [...state.held, { by: body.by, flow: body.flow }] : state.held.filter((each) => each.flow !== body.flow);
    const live = state.pools[0].tenants.find((each) => each.tenant === body.flow);
    if (live) live.state = held ? 'held' : 'waiting';
    audit(state, `pool.${part[2]}`, part[1], { ...body, held: !held }, { ...body, held });
    tellAll(state);
    return { pool: part[1], ...body, held };
  }
  if (part[0] === 'pools' && part[2] === 'workers' && part[4]) {
    const found = state.pools.find((each) => each.pool === part[1]).workers.find((each) => each.name === part[3]);
    found.state = part[4] === 'drain' ? 'drained' : 'up';
    const drained = part[4] === 'drain';
    audit(state, `worker.${part[4]}`, part[1], { worker: part[3], drained: !drained }, { worker: part[3], drained });
    tellAll(state);
    return found;
  }
  if (method === 'PATCH' && part[0] === 'projects') {
    const rows = state.pools.flatMap((pool) => pool.projects.filter((each) => each.name === part[1]));
    const before = { weight: rows[0].weight };
    for (const row of rows) row.weight = body.weight;
    audit(state, 'project.patch', part[1], before, { weight: body.weight });
    tellAll(state);
    return { id: part[1], weight: body.weight };
  }
  if (part[0] === 'pools' && part[2] === 'workers') {
    const pool = state.pools.find((each) => each.pool === part[1]);
    if (method === 'POST') {
      const added = { ...structuredClone(pool.workers.find((each) => each.name === body.like)), name: body.name, in_flight: 0 };
      pool.workers.push(added);
      audit(state, 'worker.add', part[1], null, { pool: part[1], ...body });
      tellAll(state);
      return added;
    }
    const { engine } = pool.workers.find((each) => each.name === part[3]);
    const before = { waiting: engine.overload_waiting, cache_thousandths: engine.overload_cache_thousandths };
    engine.overload_waiting = body.overload?.waiting ?? null;
    engine.overload_cache_thousandths = body.overload?.cache_thousandths ?? null;
    audit(state, 'worker.overload', part[1], { worker: part[3], overload: before }, { worker: part[3], overload: body.overload });
    tellAll(state);
    return {};
  }
  if (part[0] === 'tasks' && part[2] === 'actions') {
    const found = state.tasks.find((each) => each.id === part[1]);
    const before = found.state;
    found.state = { answer: 'READY', pause: 'PAUSED', resume: 'READY', cancel: 'FAILED', restart: 'READY', skip: 'COMPLETED' }[body.action];
    found.answer = body.text ?? null;
    const canBeUndone = ['pause', 'resume'].includes(body.action);
    audit(state, `task.${body.action}`, part[1], canBeUndone ? { state: before } : null, canBeUndone ? { state: found.state } : null);
    return found;
  }
  if (part[0] === 'keys') {
    const key = dir.keys.find((each) => each.id === part[1]);
    if (part[2] === 'revoke') key.revoked_at = new Date().toISOString();
    audit(state, `key.${part[2] ?? 'create'}`, part[1] ?? body.tenant, null, null);
    return part[2] === 'revoke' ? key : { key: key ?? dir.keys[0], secret: 'fg-secret-shown-once' };
  }
  if (part[0] === 'audit') return undone(state, state.audit.find((each) => each.id === Number(part[1])));
  if (part[0] === 'config') return { changes: [] };
  if (part[0] === 'what-if') {
    if (body.policy_file !== undefined) return { status: 422, code: 'invalid_policy', message: 'line 1: expected a policy', field: 'policy_file' };
    const side = (requests, p95) => ({ granted: requests, tokens: requests * 1210, refused: 0, wait_p50_us: p95 / 2, wait_p95_us: p95, wait_max_us: p95 * 1.4 });
    return { by: 'tenant', unit: state.pools.find((pool) => pool.pool === body.pool).unit, flows: [{ flow: 'api-batch', requests: 4120, recorded: side(4120, 41_000_000), what_if: side(4120, 83_000_000) }, { flow: 'chat', requests: 900, recorded: side(900, 600_000), what_if: side(900, 500_000) }], all: {} };
  }
  return undefined;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const fake = await startFake({ port: Number(process.argv[2] ?? 0) });
  console.log(fake.url);
}
