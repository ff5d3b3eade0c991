//! The policies of `docs/policy.md` keep what the page promises, on request sizes of real traces.
//!
//! Each promise on that page stands below a policy, or below a journal's first line, as a row of a table or in a
//! comment (see `recipes/page.rs`). The policy is run in a closed loop in virtual time, in which all the flows of the
//! promise always have requests waiting, and the tokens that each flow got are held against the ratio. What the
//! page says it measured is measured here too, and its tables and its picture must be the same to the letter.

mod closed_loop;
mod page;
mod picture;
mod sizes;

mod measured;
mod promises;
