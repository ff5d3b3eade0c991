//! One member of a cluster of gateways at work.
//!
//! The rules are those of [`fairgate_replica`]: all members read one ordered log and apply it to the same machine, so
//! they make the same decisions. This crate adds what that crate must not have: the log in a database, time, and the
//! async tasks that carry lines, records and decisions.
//!
//! - [`ClusterLog`] and [`GenerationStore`] are what a log engine must provide. [`PostgresLog`] is the engine on
//!   PostgreSQL, [`MemoryLog`] one for tests.
//! - [`ClusterHandle`] is a process in its cluster: [`ClusterHandle::admit`] waits for a slot that no other member
//!   gives away too.
//! - [`read_cluster`] and [`verify_snapshot`] read a cluster from outside.
//!
//! # Bounds
//! Records have at most 256 KiB and 256 lines; one call reads at most [`READ_RECORDS_MAX`] of them. A member holds at
//! most [`MemberOptions::waiting_max`] waiting requests and [`MemberOptions::turns`] unread submits, and sends at most
//! eight records before one is read back. Two snapshots are kept, and the records since the older one.
//!
//! # When the log does not answer
//! Requests in flight continue, and requests that wait go on waiting. New ones wait too, and are refused after
//! [`MemberOptions::patience`]. Nothing is decided alone.

mod cluster_handle;
mod cluster_log;
mod cluster_permit;
mod cluster_reader;
mod member_message;
mod member_options;
mod member_status;
mod member_task;
mod memory_log;
mod postgres_log;

pub use cluster_handle::{ClusterHandle, MemberStartError};
pub use cluster_log::{
    ClusterLog, ClusterLogError, GenerationState, GenerationStore, LogCursor, LogRead,
    READ_RECORDS_MAX, StoredRecord, StoredReport, StoredSnapshot,
};
pub use cluster_permit::ClusterPermit;
pub use cluster_reader::{ClusterReadError, VerifiedSnapshot, read_cluster, verify_snapshot};
pub use member_message::ClusterAdmitError;
pub use member_options::{MemberObserver, MemberOptions, PeerAnswers, PeerClocks};
pub use member_status::{MemberStanding, MemberStatus};
pub use memory_log::MemoryLog;
pub use postgres_log::PostgresLog;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
