//! Database in memory and random numbers, for the tests of this crate.

use fairgate_store::{Store, StoreError, StoreOptions, Transaction, TransactionDurability};

/// Runs a test inside a transaction on a new database with one tenant `t`.
pub(crate) fn in_memory(test: impl FnOnce(&mut dyn Transaction) + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (store, _) = Store::open("sqlite::memory:", StoreOptions::default()).await.unwrap();
        let work = move |tx: &mut dyn Transaction| -> Result<(), StoreError> {
            tx.run("INSERT INTO tenant_groups (name, weight, created_at) VALUES ('g', 1, 0)", &[])?;
            tx.run(
                "INSERT INTO tenants (name, group_name, weight, disabled, hosted, created_at) \
                 VALUES ('t', 'g', 1, $1, 'allow', 0)",
                &[false.into()],
            )?;
            // A panic in the store's thread would be reported as a closed store.
            let came_to = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(tx)));
            came_to.map_err(|_| StoreError::Database("the test failed; see above".to_owned()))
        };
        store.transact(TransactionDurability::ThroughKill, work).await.unwrap();
    });
}

/// Inserts a project with this weight, in thousandths.
pub(crate) fn add_project(tx: &mut dyn Transaction, id: &str, weight: i64, bucket: i64) {
    tx.run(
        "INSERT INTO fleet_projects (id, tenant, made, status, weight, concurrency, exclusive, agent_max, busy, \
         baseline, baseline_at, window_bucket, window_tokens, window_oldest, window_completed, created_at) \
         VALUES ($1, 't', 0, 'ACTIVE', $2, 2, $3, '{}', $3, 0, 0, $4, 0, 0, 0, 0)",
        &[id.into(), weight.into(), false.into(), bucket.into()],
    )
    .unwrap();
}

/// Inserts a task with one claim, which reserved these tokens.
pub(crate) fn add_task(
    tx: &mut dyn Transaction,
    id: &str,
    project: &str,
    state: &str,
    reserved: i64,
) {
    tx.run(
        "INSERT INTO fleet_tasks (id, project, made, title, prompt, state, priority, retries, retries_max, open_needs, \
         affinity_wait, epoch, ended_epoch, reserved, used, used_before, calls, created_at) \
         VALUES ($1, $2, 0, '', '', $3, 100, 0, 3, 0, 0, 1, 0, $4, 0, 0, 0, 0)",
        &[id.into(), project.into(), state.into(), reserved.into()],
    )
    .unwrap();
}

/// Random number generator with a seed (splitmix64).
pub(crate) struct FleetTestRng(u64);

impl FleetTestRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 to `end` − 1.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
