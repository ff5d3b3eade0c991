// Numbers, times and names as text: no browser needed.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as format from '../../crates/fairgate-dashboard/ui/core/format.js';

/** Puts plain spaces where the pages have narrow ones. */
const plain = (text) => text.replaceAll('\u202f', ' ');

test('whole numbers are grouped, and short from a million on', () => {
  const cases = [[0, '0'], [7, '7'], [999, '999'], [1000, '1 000'], [12345, '12 345'], [999_949, '999 949'], [999_950, '1.0 M'], [1_204_110, '1.2 M'], [5e9, '5.0 G'], [3e12, '3.0 T'], [-1002, '−1 002'], [-2_500_000, '−2.5 M']];
  for (const [value, text] of cases) assert.equal(plain(format.count(value)), text);
  assert.equal(plain(format.exact(1_204_110)), '1 204 110');
  assert.equal(plain(format.signed(24_310)), '+24 310');
  assert.equal(format.signed(0), '0');
});

test('what is unknown is a dash, and zero is zero', () => {
  for (const each of [format.count, format.exact, format.percent, format.duration, format.signed, format.signedDuration, format.bytes, format.durationOfMs]) {
    for (const unknown of [null, undefined, NaN]) assert.equal(each(unknown), '–', each.name);
    assert.match(plain(each(0)), /^0( |$)/, each.name);
  }
  assert.equal(format.money(null), '–');
});

test('a part that is not nothing is never drawn as nothing, and one that is not all never as all', () => {
  assert.equal(plain(format.percent(0.0001)), '<0.1 %');
  assert.equal(plain(format.percent(0.159)), '15.9 %');
  assert.equal(plain(format.percent(1)), '100 %');
  assert.equal(plain(format.percent(0.742)), '74.2 %');
});

test('lengths of time have two digits that count', () => {
  const cases = [[400, '0.4 ms'], [41_000, '41 ms'], [410_000, '0.41 s'], [2_100_000, '2.1 s'], [41_000_000, '41 s'], [119_000_000, '119 s'], [720_000_000, '12 min'], [18_000_000_000, '5 h'], [259_200_000_000, '3 d']];
  for (const [us, text] of cases) assert.equal(plain(format.duration(us)), text);
});

test('a difference of times has its sign', () => {
  const cases = [[1_200_000, '+1.2 s'], [-41_000, '−41 ms'], [0, '0 s']];
  for (const [us, text] of cases) assert.equal(plain(format.signedDuration(us)), text);
});

test('money keeps every digit that is not a zero at its end', () => {
  assert.equal(plain(format.money('1204.110000', 'USD')), '1 204.11 USD');
  assert.equal(format.money('0.000120'), '0.00012');
  assert.equal(format.money('5'), '5.00');
  assert.equal(format.money('-3.5'), '−3.50');
});

test('times are local, 24 hours, with the day unless it is today', () => {
  const moment = new Date(2026, 10, 18, 15, 3, 41);
  assert.equal(format.localTime(moment, new Date(2026, 10, 18, 23)), '15:03:41');
  assert.equal(format.localTime(moment, new Date(2026, 10, 19)), '18 Nov 15:03:41');
  assert.equal(format.localTime(moment, new Date(2027, 1, 1)), '18 Nov 2026 15:03:41');
  assert.equal(format.utcTime(new Date('2026-11-18T12:03:41.103Z')), '2026-11-18 12:03:41 UTC');
  assert.equal(format.moment(1_763_467_421_000_000)?.toISOString(), '2025-11-18T12:03:41.000Z');
  assert.equal(format.moment('nonsense'), null);
});

test('a name cannot hide, turn or flood the text', () => {
  assert.equal(format.plainName('\u202eevil\u202c'), '⟨U+202E⟩evil⟨U+202C⟩');
  assert.equal(format.plainName('bell\u0007\n'), 'bell␇␊');
  assert.equal(format.plainName('a\u200bb\ufeff'), 'a⟨U+200B⟩b⟨U+FEFF⟩');
  assert.equal(format.plainName('<b>"é"</b> 世界 👩'), '<b>"é"</b> 世界 👩');
  assert.equal([...format.shortName('x'.repeat(512))].length, format.NAME_CHARS);
  assert.equal(format.shortName('x'.repeat(60)), 'x'.repeat(60));
  // A surrogate pair is one character, and is not cut in two.
  assert.equal([...format.shortName('👩'.repeat(100))].length, format.NAME_CHARS);
});
