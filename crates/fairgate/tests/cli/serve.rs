//! Tests of `fairgate serve` and the admin commands, as processes over real sockets.

mod admin;
mod agents;
mod calibrate;
mod crash;
mod declared;
mod early_version;
mod editions;
mod fleet;
mod fleet_days;
mod health;
mod http;
mod log;
mod looking_back;
mod open_files;
mod policy_file;
mod readme;
mod readme_fleet;
mod recipes;
mod running;
mod secrets;
mod service_manager;
mod start;
mod surface;
mod team_story;
mod top;
mod webhooks;

pub(crate) use running::Folder;
