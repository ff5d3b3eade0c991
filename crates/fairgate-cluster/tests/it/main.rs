//! Clusters of several members in this process: over a log in memory with virtual time, and over a real PostgreSQL.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod cut_off;
mod measure;
mod member_process;
mod memory;
mod postgres;
mod postgres_faults;
mod processes;
mod test_cluster;
