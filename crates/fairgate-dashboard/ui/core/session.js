/**
 * Who is signed in. The token goes to the gateway once, which answers with a cookie that no script can read; here are
 * only the name and the rights.
 */
import { at, change, read, ApiFailure, whenSignedOut } from './api.js';
import { requestUpdate } from './update.js';

/** @typedef {Api.Session} SessionInfo */

/** State of the session: `unknown` until the gateway has answered once. */
export const session = {
  /** @type {'unknown' | 'open' | 'closed'} */
  state: 'unknown',
  /** @type {SessionInfo | null} */
  info: null,
  /** True if it ended while a page was open: the login then lies over the page, and typed text stays. */
  ended: false,
};

whenSignedOut(() => {
  if (session.state === 'closed') return;
  session.ended = session.state === 'open';
  session.state = 'closed';
  requestUpdate();
});

/** Asks the gateway who is signed in. */
export async function askSession() {
  try {
    open(await read(at`/session`));
  } catch (error) {
    if (error instanceof ApiFailure && error.status === 0) throw error;
    session.state = 'closed';
  }
  requestUpdate();
}

/**
 * Signs in with a token. Failures are the gateway's own sentences.
 * @param {string} token
 * @param {string} name
 */
export async function signIn(token, name) {
  open(await change('POST', at`/session`, name ? { token, name } : { token }));
  requestUpdate();
}

/** Signs out. The page is loaded again, so that nothing of the last user stays in memory. */
export async function signOut() {
  await change('DELETE', at`/session`);
  location.reload();
}

/** Returns true if the session may change things. */
export function mayChange() {
  return session.info?.may_write === true;
}

/** @param {SessionInfo} info */
function open(info) {
  session.info = info;
  session.state = 'open';
  session.ended = false;
}
