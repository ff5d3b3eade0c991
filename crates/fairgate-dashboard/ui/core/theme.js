/** Light or dark: as the system has it, until somebody chooses. The choice stays in this browser. */
import { requestUpdate } from './update.js';

/** @typedef {'system' | 'light' | 'dark'} Theme */

const KEY = 'fairgate-theme';
const dark = matchMedia('(prefers-color-scheme: dark)');

/** @type {{ choice: Theme, version: number }} */
export const theme = { choice: 'system', version: 0 };

/** Applies the kept choice, and follows the system. */
export function startTheme() {
  const kept = localStorage.getItem(KEY);
  theme.choice = kept === 'light' || kept === 'dark' ? kept : 'system';
  dark.addEventListener('change', apply);
  apply();
}

/** @param {Theme} choice */
export function chooseTheme(choice) {
  theme.choice = choice;
  localStorage.setItem(KEY, choice);
  apply();
}

/** Returns true if the page is dark now. */
export function isDark() {
  return theme.choice === 'dark' || (theme.choice === 'system' && dark.matches);
}

function apply() {
  document.documentElement.dataset.theme = isDark() ? 'dark' : 'light';
  // Charts are drawn on a canvas, which no style sheet reaches: they look at this number.
  theme.version += 1;
  requestUpdate();
}
