// The Grafana dashboards have the types that Grafana publishes. Grafana itself cannot be installed from npm or Debian.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { test } from 'node:test';

const BOARDS = fileURLToPath(new URL('../../packaging/grafana/', import.meta.url));
const PACKAGES = process.env.FAIRGATE_UI_PACKAGES ?? '';
const COMPOSABLE = '@grafana/schema/dist/esm/raw/composable';

// JSON has the words of Grafana's enums, which TypeScript does not take for the enums themselves.
const HEAD = `
import type { Dashboard, Panel, RowPanel } from '@grafana/schema';
import type { Options as TimeSeriesOptions, FieldConfig as TimeSeriesFields } from '${COMPOSABLE}/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';
import type { Options as StatOptions } from '${COMPOSABLE}/stat/panelcfg/x/StatPanelCfg_types.gen';
type Words<T> = T extends string ? \`\${T}\` : T extends (infer Item)[] ? Words<Item>[] : T extends object ? { [Key in keyof T]: Words<T[Key]> } : T;
type Kind<Name, Options, Fields> = Words<Omit<Panel<{}, Partial<Fields>>, 'type' | 'options'>> & { type: Name, options?: Words<Partial<Options>> };
type AnyPanel = Kind<'timeseries', TimeSeriesOptions, TimeSeriesFields> | Kind<'stat', StatOptions, {}> | Words<RowPanel>;
type Board = Omit<Words<Dashboard>, 'panels'> & { panels: AnyPanel[] };
`;

/** Returns what TypeScript finds in dashboards, given as text by name. */
async function mistakesIn(boards) {
  const folder = join(PACKAGES, 'grafana');
  await mkdir(folder, { recursive: true });
  const files = Object.entries(boards).map(([name, text]) => [join(folder, `${name}.ts`), `${HEAD}export const board: Board = ${text};`]);
  for (const [file, text] of files) await writeFile(file, text);
  const options = ['--noEmit', '--strict', '--skipLibCheck', '--module', 'esnext', '--moduleResolution', 'bundler', '--target', 'es2022'];
  const tsc = join(PACKAGES, 'node_modules/typescript/bin/tsc');
  const run = promisify(execFile)(process.execPath, [tsc, ...options, ...files.map(([file]) => file)]);
  const { stdout } = await run.catch((error) => error);
  return stdout;
}

async function allBoards() {
  const names = (await readdir(BOARDS)).filter((name) => name.endsWith('.json'));
  const texts = await Promise.all(names.map((name) => readFile(join(BOARDS, name), 'utf8')));
  return Object.fromEntries(names.map((name, at) => [basename(name, '.json'), texts[at]]));
}

test('the dashboards have the types of Grafana', async () => {
  const boards = await allBoards();
  assert.deepEqual(Object.keys(boards).sort(), ['fleet', 'gateway', 'tenants']);
  assert.equal(await mistakesIn(boards), '');
});

test('wrong dashboards are found', async () => {
  const { fleet } = await allBoards();
  const changes = {
    unknown: ['"editable": true', '"editible": true'],
    number: ['"schemaVersion": 39', '"schemaVersion": "39"'],
    panel: ['"type": "timeseries"', '"type": "timeserie"'],
    option: ['"colorMode": ', '"colourMode": '],
    word: ['"mode": "absolute"', '"mode": "absolut"'],
  };
  const wrong = Object.entries(changes).map(([name, [from, to]]) => {
    assert.ok(fleet.includes(from), from);
    return [name, fleet.replace(from, to)];
  });
  const mistakes = await mistakesIn(Object.fromEntries(wrong));
  for (const name of Object.keys(changes)) assert.match(mistakes, new RegExp(`${name}\\.ts\\(`), mistakes);
});
