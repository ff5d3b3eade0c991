//! The identity of an agent that has been authenticated.

use fairgate_store::KeyHash;

/// Agent that has been authenticated.
#[derive(Clone)]
pub struct AgentId {
    /// Name of the agent.
    pub id: String,
    /// Secret from which the agent's task keys are derived. The secret itself is derived from the agent's token, which
    /// is stored nowhere.
    pub seed: [u8; 32],
    /// Hash of the token with which the agent authenticated. If the agent's token has been replaced since, the agent
    /// gets no task. `None` if the caller vouches for the agent's identity.
    pub token: Option<KeyHash>,
}
