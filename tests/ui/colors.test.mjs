// The six colours of the charts' series can be told apart, by people with each kind of colour vision and in both themes,
// and each stands out from what is behind it. No browser needed: the colours are read out of the style sheet.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { contrast, deltaE2000, labOf, rgbOf, seenBy } from './color_math.mjs';

const STYLES = new URL('../../crates/fairgate-dashboard/ui/css/colors.css', import.meta.url);
const SERIES = [1, 2, 3, 4, 5, 6];

/** Least difference between two series (CIEDE2000), and least contrast between a series and what is behind it. */
const LEAST_DIFFERENCE = 15;
const LEAST_CONTRAST = 3;

/** Returns the variables of both themes. What the dark one does not set, it has from the light one. */
async function themes() {
  const text = await readFile(STYLES, 'utf8');
  const [light, dark] = [/:root \{([^}]*)\}/, /:root\[data-theme='dark'\] \{([^}]*)\}/].map((block) => {
    const [, body] = block.exec(text);
    return Object.fromEntries([...body.matchAll(/--([\w-]+):\s*([^;]+);/g)].map(([, name, value]) => [name, value]));
  });
  return { light, dark: { ...light, ...dark } };
}

test('differences of colours are those of the published examples', () => {
  // Sharma, Wu and Dalal (2005), rows 1, 17 and 34 of the table of test data.
  const cases = [
    [[50, 2.6772, -79.7751], [50, 0, -82.7485], 2.0425],
    [[50, 2.5, 0], [73, 25, -18], 27.1492],
    [[2.0776, 0.0795, -1.135], [0.9033, -0.0636, -0.5514], 0.9082],
  ];
  for (const [a, b, expected] of cases) assert.equal(deltaE2000(a, b).toFixed(4), expected.toFixed(4));
  assert.equal(contrast(rgbOf('#ffffff'), rgbOf('#000000')).toFixed(1), '21.0');
});

for (const theme of ['light', 'dark']) {
  test(`the series of the ${theme} theme differ for every kind of colour vision`, async (t) => {
    const colors = (await themes())[theme];
    for (const vision of ['normal', 'protan', 'deutan', 'tritan']) {
      const labs = SERIES.map((number) => labOf(seenBy(vision, rgbOf(colors[`series-${number}`]))));
      const pairs = SERIES.flatMap((a) => SERIES.filter((b) => b > a).map((b) => ({ a, b, difference: deltaE2000(labs[a - 1], labs[b - 1]) })));
      const least = pairs.reduce((one, other) => (other.difference < one.difference ? other : one));
      t.diagnostic(`${vision}: least difference ${least.difference.toFixed(1)}, series ${least.a} and ${least.b}`);
      assert.equal(pairs.length, 15);
      assert.ok(least.difference >= LEAST_DIFFERENCE, `${vision}: series ${least.a} and ${least.b} differ by ${least.difference.toFixed(1)}`);
    }
  });

  test(`the series of the ${theme} theme stand out from what is behind them`, async (t) => {
    const colors = (await themes())[theme];
    // Charts, legends and bars lie on the paper of the page.
    const contrasts = SERIES.map((number) => contrast(rgbOf(colors[`series-${number}`]), rgbOf(colors.paper)));
    t.diagnostic(`least contrast ${Math.min(...contrasts).toFixed(2)}`);
    contrasts.forEach((each, index) => assert.ok(each >= LEAST_CONTRAST, `series ${index + 1}: ${each.toFixed(2)}`));
  });
}
