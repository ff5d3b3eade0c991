/** Something that a page reads again and again: its last answer, its last failure, and when both came. */
import { ApiFailure } from './api.js';
import { pause } from './pause.js';
import { requestUpdate } from './update.js';

/**
 * @template T
 */
export class Resource {
  /**
   * @param {(signal: AbortSignal) => Promise<T>} load
   * @param {number} [everyMs] pause between two readings; 0 reads once
   */
  constructor(load, everyMs = 0) {
    this.load = load;
    this.everyMs = everyMs;
    /** @type {T | null} */
    this.value = null;
    /** @type {Error | null} */
    this.error = null;
    /** @type {Date | null} */
    this.loadedAt = null;
    this.loading = false;
    /** @type {AbortController | null} */
    this.abort = null;
    this.timer = 0;
    this.isOpen = false;
  }

  /** Begins to read. Returns itself. */
  start() {
    this.isOpen = true;
    void this.refresh();
    return this;
  }

  /** Ends reading; an answer that is still under way is dropped. */
  stop() {
    this.isOpen = false;
    clearTimeout(this.timer);
    this.abort?.abort();
  }

  /** Reads now. A reading that is under way is replaced. */
  async refresh() {
    clearTimeout(this.timer);
    this.abort?.abort();
    const abort = new AbortController();
    this.abort = abort;
    this.loading = true;
    try {
      const value = await this.load(abort.signal);
      if (abort.signal.aborted) return;
      this.value = value;
      this.error = null;
      this.loadedAt = new Date();
    } catch (error) {
      if (abort.signal.aborted) return;
      this.error = /** @type {Error} */ (error);
    }
    this.loading = false;
    requestUpdate();
    this.schedule();
  }

  schedule() {
    if (!this.isOpen || this.everyMs === 0) return;
    this.timer = setTimeout(() => {
      if (pause.since || document.hidden) this.schedule();
      else void this.refresh();
    }, this.everyMs);
  }

  /** Returns true if the last reading failed because there is no such thing. */
  isMissing() {
    return this.error instanceof ApiFailure && this.error.status === 404;
  }
}
