//! Benchmark of a journal in memory, which is only read or also replayed in a pool.

use std::io;

use fairgate_core::Pool;
use fairgate_core::decision::Decision;
use fairgate_core::event::PoolConfig;
use fairgate_journal::{JournalError, JournalReader, JournalWriter};

use crate::measure::{TimedSubject, nanoseconds};
use crate::{scenarios, steady};

const TENANTS: usize = 1000;
const CYCLES: u64 = 20_000;

struct ReplaySubject {
    config: PoolConfig,
    journal: Vec<u8>,
    lines: u64,
    decides: bool,
}

/// Opens a journal with the requests of a thousand tenants. If `decides` is true, each operation
/// replays the journal in a pool and writes the decisions; if false, it only reads the journal.
pub(crate) fn open(decides: bool) -> Box<dyn TimedSubject> {
    let scenario = scenarios::share_tenants(TENANTS);
    let config = scenario.config.clone();
    let events = steady::events(scenario, CYCLES);
    let lines = events.len() as u64;
    let journal = write(&config, &events).expect("memory takes every line");
    Box::new(ReplaySubject { config, journal, lines, decides })
}

fn write(config: &PoolConfig, events: &steady::Events) -> io::Result<Vec<u8>> {
    let mut writer = JournalWriter::new(Vec::new());
    writer.write_header(config)?;
    for (at, event) in events {
        writer.write_event(*at, event)?;
    }
    Ok(writer.into_inner())
}

impl TimedSubject for ReplaySubject {
    /// Reads or replays the journal `operations` times and returns the nanoseconds per line of the
    /// journal.
    fn time(&mut self, operations: u64) -> f64 {
        let (result, took) = nanoseconds(|| (0..operations).try_for_each(|_| self.replay()));
        result.expect("a journal that we wrote");
        took / (operations * self.lines) as f64
    }
}

impl ReplaySubject {
    fn replay(&self) -> Result<(), JournalError> {
        let (_, mut reader) = JournalReader::open(&*self.journal)?;
        let mut pool = Pool::new(self.config.clone());
        let mut output = JournalWriter::new(io::sink());
        let mut decisions: Vec<Decision> = Vec::new();
        while let Some((at, event)) = reader.next_event()? {
            if self.decides {
                pool.apply(at, event, &mut decisions).expect("the reader checks the times");
                for decision in decisions.drain(..) {
                    output.write_decision(at, &decision).expect("a sink takes every line");
                }
            } else {
                std::hint::black_box(event);
            }
        }
        Ok(())
    }
}
