//! The machine that every gateway of a cluster runs, and the protocol of one member.
//!
//! # The idea
//! The scheduler is deterministic: equal events in equal order give equal decisions. So several gateways need not agree
//! on decisions. They need one ordered log of events, and each of them decides everything by itself, and alike. A gateway
//! appends what happens at it (a request came, one ended); it acts on a decision when it reads it at its place of the log.
//!
//! Of the log only two things are asked: one order for all who read on, and that a record that one living member has
//! applied reaches every other. It may lose, double, delay and swap records on the way in, stand still, show a wrong time,
//! lose its end, or even fork: the first are repaired, the last two are noticed. Nothing in the log is money or
//! somebody's data. It holds who waits, who runs, and the scores.
//!
//! # The protocol
//! **Records.** A record is what one member appends at once: a first line and up to 256 lines ([`encode_record`]). Its
//! number (`batch`) counts from 1 in its sender's epoch, and it is applied only if it is its sender's next one. The sender
//! knows that a record counts when it reads it, and sends again what it did not read within 500 ms. So each line counts
//! once, in its sender's order, whatever happened on the way.
//!
//! **Hashes.** Every machine keeps a running hash over all records and all decisions. A record names the place and hash
//! on which it was built. A machine with another hash at that place knows that two members differ: by a fork of the log,
//! another build, a flipped bit. A record built on a place that does not exist shows that the log has lost its end.
//!
//! **Time.** Time moves with records alone, by the engine's stamps, and never back, and by at most 2/5 of a lease at once.
//! So a clock that jumps by a day expires nothing, and while the log stands still, no lease, timeout or wait runs.
//! When something is due by time, the live member of the lowest number sends a `tick`, then the next 20 ms later.
//!
//! **Members.** A process joins under a name and gets a number, and an epoch, which is the position of its `join`. It says
//! `alive` five times in each lease. A member is live while such a line came within the lease, and it had applied what
//! was there a lease ago. When a lease ends, at the same record for all: what waited at the member is cancelled; what runs
//! there keeps its slots for the time `orphans`, because the backends may still work on it; and its lines count for
//! nothing until it joins again. Then it names what it holds and what waits, and says `ready`; what it did not name is
//! freed. A process that restarts under its name, and holds the lock of the name's spool, proves that its predecessor is
//! dead, whose slots are free at once.
//!
//! **Being cut off.** A process that does not see its own `alive` come by uses no grant until it does. When its slots may
//! soon be freed, by its own replica's time or by that of a member that it asks, it cuts off what runs. So what runs
//! never exceeds the slots, with two exceptions, each with its bound: what was granted in a tail of the log that is lost,
//! and what a process holds that stands still for longer than lease and orphans together.
//!
//! **Generations.** If the log is no longer one order for all, members stop, and the state of the freshest
//! ([`choose_base`]) begins the next generation on an empty log. Everybody joins it and says what it holds and what waits;
//! who waits keeps its place. What runs although that state does not know it is submitted before all others, so that it is
//! counted at the next free slot.
//!
//! **Faults of our own.** A line that stops the machine stops it on every member, at the same place. So every member
//! leaves it out and refuses its request ([`Replica`]). A version of the rules comes in force by a line, when all live
//! members know it; recorded logs with their hashes keep anybody from changing decisions without a new version.
//!
//! # What to use
//! - [`MemberProtocol`] is one member at work, without I/O and without a clock. Its shell appends, reads, stores snapshots
//!   and asks other members. It is the way to use this crate.
//! - [`Replica`] is a machine that survives a line that stops it; [`ClusterMachine`] is the machine itself: records in,
//!   decisions out, snapshot, restore. Views and limits read it. Both also replay a dumped log.
//! - [`ClusterLimits`] are the limits of tenants and keys in exact integers.
//!
//! Nothing here reads a clock, draws a random number, uses a float, waits or does I/O.

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
