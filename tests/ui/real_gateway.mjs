// `fairgate serve` in front of `fairgate-sim`, as a user would start them, with tenants and clients.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

/** Slots of the pool `llama`: few, so that a flood is a flood. */
export const SLOTS = 8;

/** Time of one output token of the model, in microseconds. */
const TOKEN_US = 5000;

/**
 * Pools of the scenes, each with a model and a worker of its own: `llama` shares as by default; `still` has few slots
 * and a long queue, for requests that stay where they are; `rounds` makes no promise of tokens; `parts` divides slots;
 * `timed` shares the time of its worker.
 */
const SCENES = [
  { name: 'llama', slots: SLOTS },
  { name: 'still', slots: 4, lines: ['queue_timeout: 10m'] },
  {
    name: 'rounds',
    slots: 2,
    lines: ['policy:', '  drr:', '    by: class', '    classes:', '      - {name: chat, quantum: 100}', '      - {name: batch, quantum: 100}'],
  },
  { name: 'parts', slots: 8, lines: ['policy:', '  share:', '    by: tenant', '    partition: true'] },
  { name: 'timed', slots: 4, lines: ['cost:', '  unit: worker_time'] },
];

/** Starts a program, and waits until its output matches all patterns. Returns the process and the first group of each. */
async function start(program, words, patterns, stdio = ['ignore', 'pipe', 'pipe']) {
  const process = spawn(program, words, { stdio });
  const log = [];
  process.stderr?.on('data', (chunk) => log.push(String(chunk)));
  const found = new Map();
  await new Promise((done, fail) => {
    createInterface({ input: process.stdout }).on('line', (line) => {
      log.push(`${line}\n`);
      for (const pattern of patterns) if (pattern.test(line)) found.set(pattern, pattern.exec(line)[1]);
      if (found.size === patterns.length) done();
    });
    process.once('error', fail);
    process.once('exit', (code) => fail(new Error(`${program} ended with ${code}:\n${log.join('')}`)));
  });
  return { process, log, words: patterns.map((pattern) => found.get(pattern)) };
}

/** Ends a program, and waits until it has ended. */
async function end(process) {
  if (process.exitCode !== null || process.signalCode !== null) return;
  const ended = new Promise((done) => process.once('exit', done));
  process.kill('SIGTERM');
  await ended;
}

/** Returns the folder of `initdb` and `pg_ctl`, which Debian keeps off the path; null if there is none. */
async function postgresPrograms() {
  const debian = await readdir('/usr/lib/postgresql').catch(() => []);
  const folders = [...(process.env.PATH ?? '').split(delimiter), ...debian.sort().reverse().map((version) => `/usr/lib/postgresql/${version}/bin`)];
  return folders.find((folder) => existsSync(join(folder, 'pg_ctl')) && existsSync(join(folder, 'initdb'))) ?? null;
}

/** Returns a port that is free now. */
function freePort() {
  return new Promise((done, fail) => {
    const server = createServer().once('error', fail);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}

/**
 * Starts PostgreSQL with the script of the store's tests, which ends it when its standard input ends. `FAIRGATE_PG` names
 * a database that runs already.
 */
async function startPostgres() {
  if (process.env.FAIRGATE_PG) return { url: process.env.FAIRGATE_PG, close: async () => {} };
  const programs = await postgresPrograms();
  if (!programs) throw new Error('this test needs PostgreSQL: `cargo xtask test` installs it, and so does `apt-get install postgresql`');
  const script = await readFile(fileURLToPath(new URL('../../crates/fairgate-testkit/src/postgres_server.sh', import.meta.url)), 'utf8');
  const port = await freePort();
  // PostgreSQL refuses to run as root.
  const words = ['sh', '-c', script, 'postgres_server.sh', programs, String(port), 'fsync = off\n'];
  const isRoot = process.getuid?.() === 0;
  const [program, ...rest] = isRoot ? ['setpriv', '--reuid=postgres', '--regid=postgres', '--init-groups', ...words] : words;
  const server = spawn(program, rest, { stdio: ['pipe', 'pipe', 'inherit'], cwd: '/' });
  const folder = await new Promise((done, fail) => {
    createInterface({ input: server.stdout }).once('line', done);
    server.once('exit', (code) => fail(new Error(`PostgreSQL did not start: ${code}`)));
  });
  const ended = new Promise((done) => server.once('exit', done));
  return {
    url: `postgres://fairgate@/postgres?host=${folder}&port=${port}`,
    close: async () => {
      server.stdin.end();
      await ended;
    },
  };
}

/**
 * Starts a model and a gateway on free ports.
 * @param {{ postgres?: boolean }} [options]
 */
export async function startGateway({ postgres = false } = {}) {
  const closes = [];
  const close = async () => {
    while (closes.length) await closes.pop()();
  };
  try {
    const folder = await mkdtemp(join(tmpdir(), 'fairgate-ui-'));
    closes.push(() => rm(folder, { recursive: true, force: true }));
    const database = postgres ? await startPostgres() : null;
    if (database) closes.push(database.close);
    const options = ['--models', SCENES.map((scene) => scene.name).join(), '--slots', '64', '--steering', '--decode-us-per-token', String(TOKEN_US)];
    // The model ends when its standard input does.
    const sim = await start(process.env.FAIRGATE_SIM_BIN, options, [/listening on (http:\S+)/], ['pipe', 'pipe', 'pipe']);
    closes.push(() => end(sim.process));
    const file = join(folder, 'fairgate.yaml');
    await writeFile(file, configuration(sim.words[0], folder, database?.url ?? null));
    const serve = await start(process.env.FAIRGATE_BIN, ['serve', '--config', file], [/listens on (http:\S+)/, /admin API +(http:\S+)\/api\/v1/]);
    closes.push(() => end(serve.process));
    const token = (await readFile(join(folder, 'admin-token'), 'utf8')).trim();
    const gateway = new Gateway(serve.words[0], serve.words[1], token);
    closes.push(async () => gateway.stopClients());
    gateway.log = () => serve.log.join('');
    gateway.close = close;
    return gateway;
  } catch (error) {
    await close();
    throw error;
  }
}

/**
 * @param {string} model address of the simulated model
 * @param {string} folder
 * @param {string | null} database URL of PostgreSQL; null for SQLite
 */
function configuration(model, folder, database) {
  const workers = SCENES.map(({ name, slots }) => `  - {name: sim-${name}, url: "${model}", slots: ${slots}}`);
  const pools = SCENES.flatMap(({ name, lines = [] }) => [`  - name: ${name}`, `    models: [${name}]`, `    workers: [sim-${name}]`, ...lines.map((line) => `    ${line}`)]);
  return `listen: 127.0.0.1:0
data_dir: ${folder}
${database ? `store: {url: "${database}"}\n` : ''}admin: {listen: "127.0.0.1:0"}
upstreams:
${workers.join('\n')}
pools:
${pools.join('\n')}
journal: {}
groups: [{name: kept}]
tenants: [{name: in-file, group: kept}]
`;
}

class Gateway {
  /**
   * @param {string} url where clients connect
   * @param {string} admin address of the admin API and of the operators' pages
   * @param {string} token
   */
  constructor(url, admin, token) {
    this.url = url;
    this.admin = admin;
    this.token = token;
    this.clients = new Set();
  }

  /** Calls the admin API with a token; fails on any other status than one of success. */
  async api(method, path, body, token = this.token) {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json' };
    const response = await fetch(`${this.admin}/api/v1${path}`, { method, headers, body: body && JSON.stringify(body) });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response.status === 204 ? null : response.json();
  }

  /** Makes a tenant with a key, and returns the key's secret. */
  async tenant(name, group, fields = {}) {
    const groups = await this.api('GET', '/groups');
    if (!groups.items.some((each) => each.name === group)) await this.api('POST', '/groups', { name: group });
    await this.api('POST', '/tenants', { name, group, ...fields });
    return this.key(name);
  }

  /** Makes a key of a tenant, and returns its secret. */
  async key(tenant, fields = {}) {
    return (await this.api('POST', '/keys', { tenant, name: `key of ${tenant}`.slice(0, 60), ...fields })).secret;
  }

  /** Sends one request, whose answer has `tokens` tokens. Returns its status; 0 if it was cut. */
  async send(secret, { tokens = 60, signal, model = 'llama', text = 'Say something.', headers = {}, stream = false } = {}) {
    const body = { model, messages: [{ role: 'user', content: `${Math.random()} ${text} [sim:tokens=${tokens}]` }], max_tokens: tokens, stream };
    try {
      const response = await fetch(`${this.url}/v1/chat/completions`, { method: 'POST', headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json', ...headers }, body: JSON.stringify(body), signal });
      await response.text();
      return response.status;
    } catch {
      return 0;
    }
  }

  /** Sends `number` requests whose answers last for minutes: they stay where they are until the clients are stopped. */
  stay(secret, number, model) {
    const abort = this.abort();
    for (let request = 0; request < number; request += 1) void this.send(secret, { tokens: 100_000, signal: abort.signal, model, stream: true });
  }

  /** Starts `number` clients that send one request after another, or try again after a pause. Returns what stops them. */
  flood(secret, number, { pauseMs = 100, ...options } = {}) {
    const abort = this.abort();
    const loop = async () => {
      while (!abort.signal.aborted) {
        const status = await this.send(secret, { ...options, signal: abort.signal });
        // A refused client would ask again at once; the pause keeps the machine free for the browser.
        if (status !== 200) await new Promise((done) => setTimeout(done, pauseMs));
      }
    };
    for (let client = 0; client < number; client += 1) void loop();
    return () => {
      abort.abort();
      this.clients.delete(abort);
    };
  }

  abort() {
    const abort = new AbortController();
    this.clients.add(abort);
    return abort;
  }

  stopClients() {
    for (const abort of this.clients) abort.abort();
    this.clients.clear();
  }
}
