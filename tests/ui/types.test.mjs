// The pages' types hold, checked by TypeScript against types that are made of the gateway's OpenAPI document.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { before, test } from 'node:test';
import { typeOf, typesOf } from './make_types.mjs';
import { startGateway } from './real_gateway.mjs';

const HERE = fileURLToPath(new URL('.', import.meta.url));
const PACKAGES = process.env.FAIRGATE_UI_PACKAGES ?? '';

test('a schema becomes the type of the same values', () => {
  const cases = [
    [{ type: ['integer', 'null'] }, 'number | null'],
    [{ type: 'string', enum: ['a', 'b'] }, '"a" | "b"'],
    [{ $ref: '#/components/schemas/Flow-Row' }, 'Flow_Row'],
    [{ oneOf: [{ type: 'null' }, { $ref: '#/components/schemas/Engine' }] }, '(null | Engine)'],
    [{ type: 'object', required: ['a'], properties: { a: { type: 'integer' }, b: { type: 'array', items: { type: 'string' } } } }, '{ "a": number; "b"?: Array<string> }'],
    [{ type: 'object', additionalProperties: { type: 'integer' } }, '{ [name: string]: number }'],
  ];
  for (const [schema, type] of cases) assert.equal(typeOf(schema), type);
});

/** The OpenAPI document of a gateway, which is asked once. */
let document;

before(async () => {
  const gateway = await startGateway();
  document = await (await fetch(`${gateway.admin}/api/v1/openapi.json`)).json();
  await gateway.close();
});

/** Returns what TypeScript finds in the pages, if the API is as this document says. */
async function mistakesAgainst(api) {
  const folder = join(PACKAGES, 'types');
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'api.d.ts'), typesOf(api));
  const config = { extends: join(HERE, 'tsconfig.json'), include: [join(HERE, '../../crates/fairgate-dashboard/ui/**/*.js'), join(folder, 'api.d.ts')], exclude: [join(HERE, '../../crates/fairgate-dashboard/ui/vendor')] };
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(config));
  const tsc = join(PACKAGES, 'node_modules/typescript/bin/tsc');
  const { stdout } = await promisify(execFile)(process.execPath, [tsc, '-p', join(folder, 'tsconfig.json')]).catch((error) => error);
  return stdout;
}

test('the pages are well typed', async () => {
  assert.equal(await mistakesAgainst(document), '');
});

/** Fields of the API, and a file of the pages that reads each. */
const READ_FIELDS = [
  ['FlowNow', 'due_share', 'pages/pool.js'],
  ['Service', 'difference', 'pages/flow_panel.js'],
  ['TenantView', 'weight_share', 'core/types.js'],
  ['PoolView', 'slots', 'pages/overview.js'],
  ['Worker', 'retry_at', 'components/outage.js'],
  ['Quota', 'paused_ms', 'pages/workers.js'],
  ['FlowSeries', 'got', 'pages/history_charts.js'],
  ['History', 'unit', 'pages/history_charts.js'],
  ['Budget', 'limit_money', 'core/budget.js'],
  ['ReadinessBody', 'warnings', 'pages/needs.js'],
  ['Pool', 'queued_max', 'pages/needs.js'],
  ['Request', 'waited_us', 'pages/requests.js'],
  ['RequestDetail', 'story', 'pages/request.js'],
  ['Level', 'readiness', 'pages/request.js'],
  ['Attempt', 'charged_tokens', 'pages/requests.js'],
  ['FleetView', 'window_s', 'pages/fleet.js'],
  ['ProjectView', 'due_share', 'pages/fleet.js'],
  ['TaskView', 'question', 'pages/task.js'],
  ['Tenant', 'declared', 'pages/tenant.js'],
  ['Group', 'weight', 'pages/tenants.js'],
  ['Key', 'last_used_at', 'pages/tenant.js'],
  ['UsageRow', 'waited_p95_us', 'pages/usage.js'],
  ['WhatIfRun', 'wait_p95_us', 'pages/what_if.js'],
  ['AuditEntry', 'subject', 'pages/audit.js'],
  ['EffectiveSetting', 'secret', 'pages/configuration.js'],
  ['Session', 'may_write', 'core/session.js'],
  ['MyPool', 'summary', 'pages/my_page.js'],
];

/** Returns the schema that has the field itself: it may stand among the parts of another one. */
function ownerOf(schema, field) {
  return [schema, ...(schema.allOf ?? [])].find((each) => each.properties?.[field]);
}

test('a field that is renamed in the API is found where the pages read it', async () => {
  const renamed = structuredClone(document);
  for (const [name, field] of READ_FIELDS) {
    const schema = ownerOf(renamed.components.schemas[name], field);
    assert.ok(schema, `${name} has the field ${field}`);
    schema.properties[`${field}_renamed`] = schema.properties[field];
    delete schema.properties[field];
    schema.required = schema.required?.filter((each) => each !== field);
  }
  // A mistake may take several lines, of which all but the first are indented.
  const mistakes = (await mistakesAgainst(renamed)).split(/\n(?! )/);
  for (const [name, field, file] of READ_FIELDS) {
    const isFound = mistakes.some((line) => line.includes(`${file}(`) && new RegExp(`['"]${field}['"]`).test(line));
    assert.ok(isFound, `${name}.${field} in ${file}:\n${mistakes.join('\n')}`);
  }
});
