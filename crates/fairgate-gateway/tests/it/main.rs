//! The gateway's tests that use it from outside.

mod admin;
