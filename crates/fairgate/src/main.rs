//! The `fairgate` command.
fn main() {}
