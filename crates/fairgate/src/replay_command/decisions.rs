//! Prints the decisions as JSON lines.

use std::io;

use anyhow::Context;
use fairgate_core::Pool;
use fairgate_core::decision::{Decision, DecisionSink};
use fairgate_core::units::Micros;
use fairgate_journal::JournalWriter;

use super::steps::{ReplayListener, ReplayStep};
use crate::output::StdoutWriter;

/// Prints each decision when it is made.
#[derive(Debug)]
pub(crate) struct DecisionPrinter {
    writer: JournalWriter<StdoutWriter>,
    at: Micros,
    written: io::Result<()>,
}

impl DecisionPrinter {
    pub(crate) fn new(output: StdoutWriter) -> Self {
        Self { writer: JournalWriter::new(output), at: Micros(0), written: Ok(()) }
    }
}

impl DecisionSink for DecisionPrinter {
    fn decided(&mut self, decision: Decision) {
        if self.written.is_ok() {
            self.written = self.writer.write_decision(self.at, &decision);
        }
    }
}

impl ReplayListener for DecisionPrinter {
    fn before(&mut self, step: ReplayStep<'_>, _pool: &Pool) {
        self.at = step.at;
    }

    fn after(&mut self, _pool: &Pool) -> anyhow::Result<()> {
        std::mem::replace(&mut self.written, Ok(())).context("standard output")
    }
}
