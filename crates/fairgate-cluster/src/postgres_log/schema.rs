//! Creation of the tables and functions, by one process at a time.

use tokio_postgres::Client;

use super::postgres_error::from_postgres;
use crate::cluster_log::ClusterLogError;

/// Version of the tables. A later release adds steps and keeps what earlier ones use.
const VERSION: i32 = 1;

/// Id of the advisory lock for the creation: "fg_clust" in ASCII.
const LOCK: i64 = 0x6667_5f63_6c75_7374;

const VERSION_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS fairgate_cluster_schema (version integer NOT NULL)";

/// Creates what is missing, in one transaction.
pub(super) async fn create_missing(client: &mut Client) -> Result<(), ClusterLogError> {
    let transaction = client.transaction().await.map_err(from_postgres)?;
    let lock = format!("SELECT pg_advisory_xact_lock({LOCK})");
    transaction.batch_execute(&lock).await.map_err(from_postgres)?;
    transaction.batch_execute(VERSION_TABLE).await.map_err(from_postgres)?;
    let found = transaction
        .query_one("SELECT coalesce(max(version), 0) FROM fairgate_cluster_schema", &[])
        .await
        .map_err(from_postgres)?;
    let found: i32 = found.try_get(0).map_err(from_postgres)?;
    if found < VERSION {
        transaction.batch_execute(include_str!("schema.sql")).await.map_err(from_postgres)?;
        let write = "INSERT INTO fairgate_cluster_schema (version) VALUES ($1)";
        transaction.execute(write, &[&VERSION]).await.map_err(from_postgres)?;
    }
    transaction.commit().await.map_err(from_postgres)
}
