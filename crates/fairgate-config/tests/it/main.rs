//! Tests of the crate's public interface.

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
