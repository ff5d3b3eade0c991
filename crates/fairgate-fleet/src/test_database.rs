//! Database in memory, for the tests of this crate.

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
        "INSERT INTO fleet_tasks (id, project, made, title, state, priority, retries, retries_max, open_needs, \
         affinity_wait, epoch, ended_epoch, reserved, used, used_before, calls, created_at) \
         VALUES ($1, $2, 0, '', $3, 100, 0, 3, 0, 0, 1, 0, $4, 0, 0, 0, 0)",
        &[id.into(), project.into(), state.into(), reserved.into()],
    )
    .unwrap();
}
