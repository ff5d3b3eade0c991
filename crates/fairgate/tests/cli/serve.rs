//! `fairgate serve` and the admin commands, as processes over real sockets.

mod admin;
mod agents;
mod crash;
mod fleet;
mod http;
mod log;
mod open_files;
mod policy_file;
mod readme;
mod readme_fleet;
mod running;
mod secrets;
mod start;

pub(crate) use running::Folder;
