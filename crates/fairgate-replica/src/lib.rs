//! The machine that every gateway of a cluster runs, and the protocol of one member.
//!
//! # The idea
//! The scheduler is deterministic: equal events in equal order give equal decisions. So several
//! gateways need not agree on decisions. They need one ordered log of events. Each gateway computes
//! all decisions from it by itself, and all gateways compute the same ones. A gateway appends its
//! own events (a request arrived, a request ended). It acts on a decision only after it has read
//! the log up to the event that causes the decision.
//!
//! The log must guarantee two things: all members read its records in the same order, and a record
//! that one live member has applied reaches all others. Before the log has accepted records, it may
//! lose, duplicate, delay and reorder them. It may stop for a while, and its timestamps may be
//! wrong. The protocol tolerates all of this. If the log loses its end or forks, the protocol
//! detects it, and a new generation begins. The log contains lines about requests and their costs,
//! workers, members and limits. It contains no prompts, no answers and no rows of the ledger.
//!
//! # The protocol
//! **Records.** A member appends lines in records: a header line and up to 256 lines
//! ([`encode_record`]). Each sender numbers its records (`batch`) from 1 in its epoch, and a record
//! is applied only if its number is the next one. The sender knows that a record was applied when
//! it reads it in the log. If it has not read a record within 500 ms, it sends the record again. So
//! each line is applied once, in its sender's order.
//!
//! **Hashes.** Every machine keeps a running hash over all records and all decisions. A record
//! states the position and the hash on which it was built. If a machine has another hash at that
//! position, the two members have different states, because of a fork of the log, another build or
//! a flipped bit. If the position does not exist, the log has lost its end.
//!
//! **Time.** Only records advance time. It follows the timestamps of the log, never goes back, and
//! advances by at most 2/5 of a lease for each record. So a clock that jumps by a day advances time
//! by 2 s (at the default lease). While nothing is appended, no lease or timeout runs. When
//! something is due and no other record comes, the live member with the lowest number sends a
//! `tick`. If it does not, the next member does so 20 ms later.
//!
//! **Members.** A process joins under a name, and gets a number and an epoch. The epoch is the
//! position of its `join`. The process sends `alive` five times in each lease. An `alive` renews
//! the lease if its sender is at most one lease behind in applying the log. Every member decides at
//! the same record that a lease has ended. The queued requests of the ended member are then
//! cancelled. Its requests in flight keep their slots for the time `orphans`, because the backends
//! may still work on them. Its lines are ignored until it joins again. Then it names its queued and
//! running requests and sends `ready`; requests that it did not name are ended. A process that
//! restarts under the same name and holds the lock of the spool proves that its predecessor is
//! dead, so the slots of the predecessor are freed at once.
//!
//! **Lost contact.** A process that has not read its own `alive` for 3/5 of a lease uses no grant
//! until it reads one. It aborts its requests in flight when its slots may soon be freed, by the
//! time of its own replica or of a member that it asks. So the running requests never exceed the
//! slots, with two bounded exceptions: requests granted in an end of the log that was lost, and
//! requests of a process that is paused for longer than lease and orphans together.
//!
//! **Generations.** If the log is no longer the same order for all, members stop granting. The
//! state of the member that has applied the most records ([`choose_base`]) begins the next
//! generation on an empty log. Every member joins the new generation and names its requests. Queued
//! requests in the chosen state keep their positions in the queue. A running request that is not in
//! that state is submitted with the highest priority, so that it gets the next free slot.
//!
//! **Bugs in the rules.** A line that makes the machine panic does so on every member, at the same
//! position. So every member skips it and refuses its request ([`Replica`]). A new version of the
//! rules takes effect by a line, which is accepted only after all live members have known the
//! version for the time `upgrade_after`. Tests replay recorded logs and compare their hashes, so no
//! decision changes without a new version.
//!
//! # What to use
//! - [`MemberProtocol`] is one member, without I/O and without a clock. Most callers need only this
//!   type. Its caller, called the shell here, appends and reads records, stores snapshots and asks
//!   other members.
//! - [`Replica`] is a machine that recovers from a line that makes it panic. [`ClusterMachine`] is
//!   the machine itself: it takes records, returns decisions, and can be stored in a snapshot and
//!   restored. Both can also replay a dumped log.
//! - [`ClusterLimits`] are the limits of tenants and keys in exact integers.
//!
//! This crate reads no clock, draws no random numbers, uses no floats, never waits and does no I/O.

#![deny(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::float_arithmetic
)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod client_names;
mod clock;
mod cluster_config;
mod decision;
mod generation;
mod limits;
mod line;
mod machine;
mod member_protocol;
mod members;
mod recent_hashes;
mod record;
mod replica;
mod replicated_pool;
mod snapshot;
#[cfg(test)]
mod tests;
mod units;
mod workers;

pub use cluster_config::{ClusterConfig, ClusterTiming};
pub use decision::{
    AppliedPoolEvent, ClusterDecision, ClusterEffects, JoinRefusal, LineRefusal, MemberEnd,
    SubmitRefusal,
};
pub use generation::{GenerationReport, choose_base};
pub use limits::{
    CallerAccount, CallerKind, CallerLimit, ClusterLimitReached, ClusterLimits,
    ClusterMinuteBucket, LimitRefusal, LimitedRequest,
};
pub use line::{ClusterLine, JoinLine, LineError, LogLine, PoolLine, PoolLineFields};
pub use machine::{
    ApplyError, ClusterMachine, LogEntry, MACHINE_VERSIONS, RecordOutcome, RecordReceipt,
};
pub use member_protocol::{
    ConfigTooLargeError, FlightEnd, LineTooLongError, LocalMicros, MemberIdentity, MemberOutput,
    MemberProtocol, RequestRefusal, SubmitError,
};
pub use members::{ClusterMember, MemberState};
pub use record::{
    LOG_VERSION, RECORD_BYTES_MAX, RECORD_LINES_MAX, Record, RecordError, RecordHeader,
    decode_record, encode_record,
};
pub use replica::Replica;
pub use snapshot::{SnapshotError, snapshot_hash};
pub use units::{
    ClusterMicros, EngineStamp, LogPosition, MemberEpoch, MemberNumber, ShortHash, is_valid_name,
};
