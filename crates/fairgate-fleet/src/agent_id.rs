//! The identity of an authenticated agent.

use fairgate_store::KeyHash;

/// An authenticated agent.
#[derive(Clone)]
pub struct AgentId {
    /// Name of the agent.
    pub id: String,
    /// Secret from which the agent's task keys are derived. The secret itself is derived from the
    /// agent's token, which is not stored.
    pub seed: [u8; 32],
    /// Hash of the token with which the agent authenticated. An agent whose token has been replaced
    /// since gets no task. `None` if the caller guarantees the agent's identity.
    pub token: Option<KeyHash>,
}
