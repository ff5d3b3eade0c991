// The pages' types hold, checked by TypeScript against types that are made of the gateway's OpenAPI document.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { test } from 'node:test';
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

test('the pages are well typed', async (t) => {
  const gateway = await startGateway();
  t.after(() => gateway.close());
  const document = await (await fetch(`${gateway.admin}/api/v1/openapi.json`)).json();
  const folder = join(PACKAGES, 'types');
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'api.d.ts'), typesOf(document));
  const config = { extends: join(HERE, 'tsconfig.json'), include: [join(HERE, '../../crates/fairgate-dashboard/ui/**/*.js'), join(folder, 'api.d.ts'), join(HERE, 'api_shapes.ts')], exclude: [join(HERE, '../../crates/fairgate-dashboard/ui/vendor')] };
  await writeFile(join(folder, 'tsconfig.json'), JSON.stringify(config));
  const tsc = join(PACKAGES, 'node_modules/typescript/bin/tsc');
  const { stdout } = await promisify(execFile)(process.execPath, [tsc, '-p', join(folder, 'tsconfig.json')]).catch((error) => error);
  assert.equal(stdout, '', stdout);
});
