//! The rules by which tasks and projects use tokens. The store applies them to requests with task keys, and the fleet
//! to its rounds and calls. The rules are pure functions, and the SQL that agrees with a rule stands beside it.

mod held_task;

pub use held_task::{HELD_STATES, is_held};
