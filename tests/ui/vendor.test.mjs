// The vendored libraries are those of npm, unchanged, in the versions of the lock file.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFile, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';

const VENDOR = fileURLToPath(new URL('../../crates/fairgate-dashboard/ui/vendor/', import.meta.url));
const PACKAGES = join(process.env.FAIRGATE_UI_PACKAGES ?? '', 'node_modules');

/** Where each file of ours is in its package, if not at the same place. */
const PLACES = { 'uplot/uPlot.esm.js': 'uplot/dist/uPlot.esm.js', 'uplot/uPlot.min.css': 'uplot/dist/uPlot.min.css', 'uplot/uPlot.esm.d.ts': 'uplot/dist/uPlot.d.ts' };

const hash = async (path) => createHash('sha256').update(await readFile(path)).digest('hex');

test('every vendored file is listed with its hash, and is the file of its package', async () => {
  const lines = (await readFile(`${VENDOR}vendor.sha256`, 'utf8')).trim().split('\n');
  const listed = new Map(lines.map((line) => line.split(/\s+/).reverse()));
  const there = (await readdir(VENDOR, { recursive: true, withFileTypes: true })).filter((entry) => entry.isFile()).map((entry) => join(entry.path, entry.name).slice(VENDOR.length));
  assert.deepEqual(there.filter((file) => file !== 'vendor.sha256').sort(), [...listed.keys()].sort());
  for (const [file, expected] of listed) {
    assert.equal(await hash(VENDOR + file), expected, `${file} is as it was committed`);
    assert.equal(await hash(join(PACKAGES, PLACES[file] ?? file)), expected, `${file} is the file of the package`);
  }
});
