//! Prints the decisions as JSON lines.

use std::io::{self, Write};

use fairgate_core::Pool;
use fairgate_core::decision::{Decision, DecisionSink};
use fairgate_core::units::Micros;
use fairgate_journal::JournalWriter;

use super::steps::{ReplayListener, ReplayStep};
use crate::error::ReplayError;

/// Prints each decision when it is made.
#[derive(Debug)]
pub struct DecisionPrinter<W: Write> {
    writer: JournalWriter<W>,
    at: Micros,
    written: io::Result<()>,
}

impl<W: Write> DecisionPrinter<W> {
    /// Creates a printer that writes to `output`.
    pub fn new(output: W) -> Self {
        Self { writer: JournalWriter::new(output), at: Micros(0), written: Ok(()) }
    }
}

impl<W: Write> DecisionSink for DecisionPrinter<W> {
    fn decided(&mut self, decision: Decision) {
        if self.written.is_ok() {
            self.written = self.writer.write_decision(self.at, &decision);
        }
    }
}

impl<W: Write> ReplayListener for DecisionPrinter<W> {
    fn before(&mut self, step: ReplayStep<'_>, _pool: &Pool) {
        self.at = step.at;
    }

    fn after(&mut self, _pool: &Pool) -> Result<(), ReplayError> {
        std::mem::replace(&mut self.written, Ok(())).map_err(ReplayError::Output)
    }
}
