//! The rate at which 8 connections of a PostgreSQL server commit transactions that change one row. Each connection has
//! a row of its own, and each commit waits for the disk. The claims of a fleet are compared with this rate, because
//! their commits wait for the same disk.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fairgate_testkit::postgres_server::connect;
use tokio::task::JoinSet;

/// Number of connections that commit at the same time.
const CONNECTIONS: i32 = 8;

/// Returns the number of commits per second, measured over `time`.
pub(super) async fn commits_per_second(server: &str, time: Duration) -> Result<f64> {
    let first = connect(server).await?;
    let row = first.query_one("SELECT current_setting('fsync')", &[]).await?;
    ensure!(row.get::<_, &str>(0) == "on", "commits of this server do not wait for the disk");
    first
        .batch_execute(
            "DROP TABLE IF EXISTS one_row; CREATE TABLE one_row (id INTEGER PRIMARY KEY, n BIGINT NOT NULL)",
        )
        .await?;
    let start = Instant::now();
    let until = start + time;
    let mut working = JoinSet::new();
    for id in 0..CONNECTIONS {
        let client = connect(server).await?;
        client.execute("INSERT INTO one_row (id, n) VALUES ($1, 0)", &[&id]).await?;
        working.spawn(async move {
            let update = client.prepare("UPDATE one_row SET n = n + 1 WHERE id = $1").await?;
            let mut commits = 0_u32;
            while Instant::now() < until {
                client.execute(&update, &[&id]).await?;
                commits += 1;
            }
            anyhow::Ok(commits)
        });
    }
    let mut commits = 0.0;
    while let Some(done) = working.join_next().await {
        commits += f64::from(done??);
    }
    Ok(commits / start.elapsed().as_secs_f64())
}
