//! The replicated machine.
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
#[cfg(test)]
mod simulation;
mod snapshot;
mod units;
mod workers;

pub use cluster_config::{ClusterConfig, ClusterTiming};
pub use decision::{
    AppliedPoolEvent, ClusterDecision, ClusterEffects, JoinRefusal, LineRefusal, MemberEnd,
    SubmitRefusal,
};
pub use generation::{GenerationReport, choose_base};
pub use limits::{
    CallerAccount, CallerKind, CallerLimit, CallerLimits, LimitRefusal, LimitedRequest,
    MinuteBucket, ReachedLimit,
};
pub use line::{ClusterLine, JoinLine, LineError, LogLine, PoolLine, PoolLineFields};
pub use machine::{
    ApplyError, ClusterMachine, LogEntry, MACHINE_VERSIONS, RecordOutcome, RecordReceipt,
};
pub use member_protocol::{
    ConfigTooLargeError, LineTooLongError, LocalMicros, MemberIdentity, MemberOutput,
    MemberProtocol, RequestEnd, RequestRefusal, SubmitError,
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
