// `fairgate serve` in front of `fairgate-sim`, as a user would start them, with tenants and clients.
import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

/** Slots of the model: few, so that a flood is a flood. */
export const SLOTS = 8;

/** Waits until a program has printed what matches, and returns the match. */
function printed(process, pattern, what) {
  return new Promise((done, fail) => {
    const lines = [];
    createInterface({ input: process.stdout }).on('line', (line) => {
      lines.push(line);
      const match = pattern.exec(line);
      if (match) done(match[1]);
    });
    process.on('exit', (code) => fail(new Error(`${what} ended with ${code}: ${lines.join('\n')}`)));
  });
}

/** Starts a model and a gateway on free ports. */
export async function startGateway() {
  const folder = await mkdtemp(join(tmpdir(), 'fairgate-ui-'));
  const sim = spawn(process.env.FAIRGATE_SIM_BIN, ['--models', 'llama', '--slots', String(SLOTS), '--steering', '--decode-us-per-token', '5000'], { stdio: ['pipe', 'pipe', 'inherit'] });
  const model = await printed(sim, /listening on (http:\S+)/, 'fairgate-sim');
  const file = join(folder, 'fairgate.yaml');
  await writeFile(file, configuration(model, folder));
  const serve = spawn(process.env.FAIRGATE_BIN, ['serve', '--config', file], { stdio: ['ignore', 'pipe', 'pipe'] });
  const log = [];
  serve.stderr.on('data', (chunk) => log.push(String(chunk)));
  const url = await printed(serve, /listens on (http:\S+)/, `fairgate serve (${log.join('')})`);
  serve.stdout.resume();
  const token = (await readFile(join(folder, 'admin-token'), 'utf8')).trim();
  const gateway = new Gateway(url, token);
  gateway.close = async () => {
    gateway.stopClients();
    serve.kill('SIGTERM');
    await new Promise((done) => serve.once('exit', done));
    sim.kill('SIGTERM');
    await rm(folder, { recursive: true, force: true });
  };
  gateway.log = () => log.join('');
  return gateway;
}

/**
 * @param {string} model address of the simulated model
 * @param {string} folder
 */
function configuration(model, folder) {
  return `listen: 127.0.0.1:0
data_dir: ${folder}
upstreams:
  - name: sim-a
    url: ${model}
    slots: ${SLOTS}
pools:
  - name: llama
    models: [llama]
    workers: [sim-a]
journal: {}
`;
}

class Gateway {
  constructor(url, token) {
    this.url = url;
    this.token = token;
    this.clients = new Set();
  }

  /** Calls the admin API with the token; fails on any other status than one of success. */
  async api(method, path, body) {
    const headers = { authorization: `Bearer ${this.token}`, 'content-type': 'application/json' };
    const response = await fetch(`${this.url}/api/v1${path}`, { method, headers, body: body && JSON.stringify(body) });
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response.status === 204 ? null : response.json();
  }

  /** Makes a tenant with a key, and returns the key's secret. */
  async tenant(name, group, fields = {}) {
    const groups = await this.api('GET', '/groups');
    if (!groups.items.some((each) => each.name === group)) await this.api('POST', '/groups', { name: group });
    await this.api('POST', '/tenants', { name, group, ...fields });
    return (await this.api('POST', '/keys', { tenant: name, name: `key of ${name}`.slice(0, 60) })).secret;
  }

  /** Sends one request, whose answer has `tokens` tokens. Returns its status; 0 if it was cut. */
  async send(secret, tokens, signal, model = 'llama') {
    const body = { model, messages: [{ role: 'user', content: `Say something. [sim:tokens=${tokens}] ${Math.random()}` }], max_tokens: tokens };
    try {
      const response = await fetch(`${this.url}/v1/chat/completions`, { method: 'POST', headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' }, body: JSON.stringify(body), signal });
      await response.text();
      return response.status;
    } catch {
      return 0;
    }
  }

  /** Starts `number` clients that send one request after another. Returns what stops them. */
  flood(secret, number, tokens = 60) {
    const abort = new AbortController();
    const loop = async () => {
      while (!abort.signal.aborted) {
        const status = await this.send(secret, tokens, abort.signal);
        // A refused client asks again at once; a tenth of a second keeps the machine free for the browser.
        if (status !== 200) await new Promise((done) => setTimeout(done, 100));
      }
    };
    for (let client = 0; client < number; client += 1) void loop();
    this.clients.add(abort);
    return () => {
      abort.abort();
      this.clients.delete(abort);
    };
  }

  stopClients() {
    for (const abort of this.clients) abort.abort();
    this.clients.clear();
  }
}
