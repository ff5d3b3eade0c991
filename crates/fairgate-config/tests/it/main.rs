//! What the crate promises, seen from outside.

mod classes;
mod declared;
mod document;
mod errors;
mod example;
mod mutations;
mod options;
mod prices;
mod reload;
mod secrets;
mod support;
mod values;
mod warnings;
