//! The gateway, composed of its two planes: the data plane (`fairgate-proxy`), which carries
//! requests, and the control plane (`fairgate-control`), which shows and changes the data plane.
//! Only this crate depends on both. It only defines the order of steps: `start`, `reload` and
//! `drain` are each one function to read from top to bottom.

mod declared;
mod drain;
mod fleet;
mod gateway;
mod reload;
mod start;

pub use declared::GatewayDeclarationError;
pub use drain::GatewayDrainReport;
pub use gateway::Gateway;
pub use reload::GatewayReloadError;
pub use start::{GatewayListeners, GatewayOptions, GatewayStartError};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
