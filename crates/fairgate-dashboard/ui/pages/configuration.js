/** Configuration: each pool's policy as a tree, and every option with its value. Secrets are names of places. */
import { html, nothing } from '../vendor/lit-html/lit-html.js';
import { at, read } from '../core/api.js';
import { connection } from '../core/connection.js';
import { several } from '../core/format.js';
import { livePools } from '../core/live.js';
import { Resource } from '../core/resource.js';
import { mayChange, session } from '../core/session.js';
import { requestUpdate } from '../core/update.js';
import { name } from '../components/name.js';
import { changeButton, failureNote, loaded, pageHead, section } from '../components/page.js';
import { policyTree } from '../components/policy_tree.js';
import { dataTable } from '../components/table.js';
import { openReload } from '../changes/reload.js';
import { whenChanged } from '../changes/change.js';

class ConfigurationPage {
  title = 'Configuration';
  filter = '';
  /** @type {Resource<Api.EffectiveConfig>} */
  config = new Resource(() => read(at`/config`)).start();
  /** @type {Map<string, Resource<Api.PoolPolicy>>} */
  policies = new Map();
  stop = whenChanged(() => {
    void this.config.refresh();
    for (const policy of this.policies.values()) void policy.refresh();
  });

  leave() {
    this.config.stop();
    for (const policy of this.policies.values()) policy.stop();
    this.stop();
  }

  /** @param {string} pool */
  policy(pool) {
    const known = this.policies.get(pool) ?? new Resource(() => read(at`/pools/${pool}/policy`)).start();
    this.policies.set(pool, known);
    return known;
  }

  view() {
    const config = this.config.value;
    const reload = changeButton('Reload…', openReload, { mayChange: mayChange(), isOffline: connection.lostAt !== null });
    return html`
      ${pageHead('Configuration', config ? html`${several(config.settings.length, 'setting')} of ${name(session.info?.gateway)}, with ${several(livePools().length, 'pool')}. A reload applies all but those that need a restart.` : 'Reading the configuration.', reload)}
      <div class="columns">${livePools().map((pool) => section(html`Policy of ${name(pool.pool)}`, loaded(this.policy(pool.pool), (policy) => policyTree(policy.root))))}</div>
      ${this.config.error ? failureNote(this.config.error) : nothing}
      ${config ? section('Options', this.options(config), html`<label class="field-inline">find <input type="search" .value=${this.filter} @input=${(/** @type {Event} */ event) => this.find(event)}></label>`) : nothing}`;
  }

  /** @param {Event} event */
  find(event) {
    this.filter = /** @type {HTMLInputElement} */ (event.target).value;
    requestUpdate();
  }

  /** @param {Api.EffectiveConfig} config */
  options(config) {
    const rows = config.settings.filter((row) => row.path.toLowerCase().includes(this.filter.toLowerCase()));
    return dataTable({
      caption: 'Options of the configuration',
      rows,
      key: (row) => row.path,
      empty: 'No option has this in its name.',
      columns: [
        { id: 'path', title: 'option', cell: (row) => html`<code>${row.path}</code>` },
        { id: 'value', title: 'value', cell: (row) => (row.secret ? html`<span class="quiet">secret: ${name(row.secret)}</span>` : name(row.value)) },
        { id: 'change', title: 'a change needs', cell: (row) => (row.needs_restart ? 'a restart' : html`<span class="quiet">a reload</span>`) },
      ],
    });
  }
}

export const open = () => new ConfigurationPage();
