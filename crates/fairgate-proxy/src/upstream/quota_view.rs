//! Limits of a provider's account, as the live view shows them.

use std::time::Duration;

/// Limits of a provider's account, for the live view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaView {
    /// Name of the account, as in the configuration.
    pub account: String,
    /// Requests that the account allows per minute, and the source of that number: `file`, `header` or `learned`.
    /// `None` if there is no such limit.
    pub requests: Option<(u64, &'static str)>,
    /// Tokens that the account allows per minute, and the source of that number: `file` or `header`. `None` if there is
    /// no such limit.
    pub tokens: Option<(u64, &'static str)>,
    /// Time left of the current pause, in which nothing is sent; `None` if there is no pause.
    pub paused: Option<Duration>,
    /// Length of the pause that the provider asked for; `None` if it asked for none.
    pub asked: Option<Duration>,
    /// Provider's reason why the account is spent or blocked; `None` if the account is usable.
    pub out: Option<String>,
}
