//! What every handler shares.

use arc_swap::ArcSwap;
use fairgate_config::Config;
use fairgate_fleet::Fleet;
use fairgate_store::{KeyHash, Store, Throttle};

use crate::control::Control;
use crate::forward::Leases;
use crate::held::HeldBytes;
use crate::identity::Identity;
use crate::in_flight::InFlight;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::phase::Phase;
use crate::pools::Pools;
use crate::request_id::RequestIds;
use crate::response_ids::ResponseIds;

/// The gateway's parts. One for the process, shared by all handlers in an `Arc`.
pub struct App {
    /// The configuration in force.
    pub config: ArcSwap<Config>,
    /// The database.
    pub store: Store,
    /// Projects, tasks and agents, in the same database.
    pub fleet: Fleet,
    /// Who asks.
    pub identity: Identity,
    /// How much each may ask, before anything is submitted.
    pub limits: Limits,
    /// What there is to see.
    pub metrics: Metrics,
    /// The pools and their upstreams.
    pub pools: Pools,
    /// The hash of the admin token.
    pub admin_token: ArcSwap<KeyHash>,
    /// What the control plane keeps.
    pub control: Control,
    /// Whether it serves, drains or closes.
    pub phase: Phase,
    /// The names of requests.
    pub(crate) ids: RequestIds,
    /// Whose the responses are that requests go on from.
    pub(crate) response_ids: ResponseIds,
    /// Slots for programs that call providers themselves.
    pub(crate) leases: Leases,
    /// Request bodies in memory.
    pub(crate) held: HeldBytes,
    /// What the log says about the database, by what it kept from being done.
    pub(crate) complaints: Throttle<&'static str>,
    /// Rows that are being written and that nobody waits for.
    pub(crate) rows_adrift: InFlight,
}
