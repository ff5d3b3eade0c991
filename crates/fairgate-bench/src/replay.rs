//! A journal read from memory, with and without the pool that decides.

use std::io;

use fairgate_core::Pool;
use fairgate_core::decision::Decision;
use fairgate_core::event::PoolConfig;
use fairgate_journal::{JournalError, Reader, Writer};

use crate::measure::{Subject, nanoseconds};
use crate::{scenarios, steady};

const TENANTS: usize = 1000;
const CYCLES: u64 = 20_000;

struct Replay {
    config: PoolConfig,
    journal: Vec<u8>,
    lines: u64,
    decides: bool,
}

/// The journal of a thousand tenants, to be read only or to be replayed with its decisions written.
pub(crate) fn open(decides: bool) -> Box<dyn Subject> {
    let scenario = scenarios::share_tenants(TENANTS);
    let config = scenario.config.clone();
    let events = steady::events(scenario, CYCLES);
    let lines = events.len() as u64;
    let journal = write(&config, &events).expect("memory takes every line");
    Box::new(Replay { config, journal, lines, decides })
}

fn write(config: &PoolConfig, events: &steady::Events) -> io::Result<Vec<u8>> {
    let mut writer = Writer::new(Vec::new());
    writer.write_header(config)?;
    for (at, event) in events {
        writer.write_event(*at, event)?;
    }
    Ok(writer.into_inner())
}

impl Subject for Replay {
    /// Nanoseconds per line, over so many times the journal.
    fn time(&mut self, operations: u64) -> f64 {
        let (result, took) = nanoseconds(|| (0..operations).try_for_each(|_| self.replay()));
        result.expect("a journal that we wrote");
        took / (operations * self.lines) as f64
    }
}

impl Replay {
    fn replay(&self) -> Result<(), JournalError> {
        let (_, mut reader) = Reader::open(&*self.journal)?;
        let mut pool = Pool::new(self.config.clone());
        let mut output = Writer::new(io::sink());
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
