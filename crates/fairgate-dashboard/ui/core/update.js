/**
 * One drawing a frame. State lives in plain objects; whoever changes some calls `requestUpdate`, and the whole page is
 * drawn again. lit-html touches only what differs.
 */

/** @type {Set<() => void>} */
const painters = new Set();
let scheduled = false;

/** Draws everything before the next frame. */
export function requestUpdate() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    for (const paint of painters) paint();
  });
}

/**
 * Registers what draws.
 * @param {() => void} paint
 */
export function onUpdate(paint) {
  painters.add(paint);
  requestUpdate();
}
