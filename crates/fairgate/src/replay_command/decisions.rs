//! The decisions as JSON lines.

use std::io;

use anyhow::Context;
use fairgate_core::Pool;
use fairgate_core::decision::{Decision, Sink};
use fairgate_core::units::Micros;
use fairgate_journal::Writer;

use super::steps::{Listener, Step};
use crate::output::Output;

/// Prints each decision when it is made.
#[derive(Debug)]
pub(crate) struct Decisions {
    writer: Writer<Output>,
    at: Micros,
    written: io::Result<()>,
}

impl Decisions {
    pub(crate) fn new(output: Output) -> Self {
        Self { writer: Writer::new(output), at: Micros(0), written: Ok(()) }
    }
}

impl Sink for Decisions {
    fn decided(&mut self, decision: Decision) {
        if self.written.is_ok() {
            self.written = self.writer.write_decision(self.at, &decision);
        }
    }
}

impl Listener for Decisions {
    fn before(&mut self, step: Step<'_>, _pool: &Pool) {
        self.at = step.at;
    }

    fn after(&mut self, _pool: &Pool) -> anyhow::Result<()> {
        std::mem::replace(&mut self.written, Ok(())).context("standard output")
    }
}
