/**
 * Loads the page after its first paint: something stands there at once, however slow the machine. Which of the two pages
 * it is follows from the address.
 */
import { audience } from './core/audience.js';

function load() {
  return audience === 'me' ? import('./me.js') : import('./app.js');
}

// A hidden tab is not painted, so it would wait for ever.
if (document.hidden) void load();
else requestAnimationFrame(() => setTimeout(load));
