//! Writing a journal, or the decisions of a replay.

use std::io::{self, Write};

use fairgate_core::decision::Decision;
use fairgate_core::event::{Event, PoolConfig, WorkerState};
use fairgate_core::snapshot::Snapshot;
use fairgate_core::units::Micros;

use crate::clock::Clock;
use crate::write::json::Json;
use crate::write::{decision, event, header, snapshot};

/// Writes lines of a journal, or of decisions. Each line, but for a snapshot's, reaches `W` whole, in one call.
///
/// ```
/// use fairgate_core::event::Event;
/// use fairgate_core::units::Micros;
///
/// let mut writer = fairgate_journal::Writer::new(Vec::new());
/// writer.write_event(Micros(9), &Event::Cancel { id: "r7".into() })?;
/// assert_eq!(writer.into_inner(), b"{\"at\":9,\"event\":\"cancel\",\"id\":\"r7\"}\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    line: Json,
    clock: Option<Clock>,
}

impl<W: Write> Writer<W> {
    /// Writes to `output`, which should be buffered where many lines come at once.
    pub fn new(output: W) -> Self {
        Self { output, line: Json::default(), clock: None }
    }

    /// Says in the journal's first line which time of day an `at` is. It is for readers and decides nothing.
    ///
    /// ```
    /// use fairgate_core::event::PoolConfig;
    /// use fairgate_core::units::Micros;
    /// use fairgate_journal::{Clock, Reader, Writer, parse_policy};
    ///
    /// let config = PoolConfig::new(2, parse_policy(r#"{"share":{"by":"tenant"}}"#)?);
    /// let clock = Clock { at: Micros(0), unix_us: 1_763_200_000_000_000 };
    /// let mut writer = Writer::new(Vec::new()).with_clock(clock);
    /// writer.write_header(&config)?;
    /// let journal = writer.into_inner();
    /// let (_, reader) = Reader::open(&journal[..])?;
    /// assert_eq!(reader.clock(), Some(clock));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Writes the first line of a journal.
    ///
    /// A worker in the header is up; one whose state is another is an error of kind
    /// [`InvalidInput`](io::ErrorKind::InvalidInput), and nothing is written.
    pub fn write_header(&mut self, config: &PoolConfig) -> io::Result<()> {
        let up = [None, Some(WorkerState::Up)];
        if let Some(worker) = config.workers.iter().find(|w| !up.contains(&w.state)) {
            let problem = format!("worker {:?} in a journal's header must be up", worker.name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let clock = self.clock;
        self.write_line(|json| header::header(json, clock, config))
    }

    /// Writes the first line of a journal that goes on from here: `{"fairgate_journal":1,"snapshot":{…}}`.
    ///
    /// What reads it gets the same snapshot. Its fields are called as in [`Snapshot`], with their units, and by
    /// the names that headers and events have where those hold the same. Counters of 128 bits (deficits, virtual
    /// time, what flows have been served, …) are JSON strings of decimal digits, whatever their value, since few
    /// readers of JSON have numbers so large; everything else is an ordinary number. Equal snapshots give equal
    /// bytes.
    ///
    /// The line is long where much waits, and reaches `W` in many parts: let a journal be seen under its name
    /// only when all of this line is in it. A worker that does not state all that
    /// [`Pool::snapshot`](fairgate_core::Pool::snapshot) states is an error of kind
    /// [`InvalidInput`](io::ErrorKind::InvalidInput), and nothing is written.
    ///
    /// ```
    /// use fairgate_core::Pool;
    /// use fairgate_core::event::PoolConfig;
    /// use fairgate_journal::{Reader, Start, Writer, parse_policy};
    ///
    /// let pool = Pool::new(PoolConfig::new(2, parse_policy(r#"{"share":{"by":"tenant"}}"#)?));
    /// let mut writer = Writer::new(Vec::new());
    /// writer.write_snapshot(&pool.snapshot())?;
    /// let (start, _) = Reader::open(&writer.into_inner()[..])?;
    /// assert_eq!(start, Start::Snapshot(Box::new(pool.snapshot())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_snapshot(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        self.line.clear();
        snapshot::write(&mut self.line, &mut self.output, self.clock, snapshot)
    }

    /// Writes an event.
    pub fn write_event(&mut self, at: Micros, event: &Event) -> io::Result<()> {
        self.write_line(|json| event::event(json, at, event))
    }

    /// Writes a decision.
    ///
    /// A grant that carries its [`Why`](fairgate_core::explain::Why) has it in the field `why`:
    /// `{"cost":…,"levels":[{"by":…,"flow":…,"rule":…,"standing":{…},"runner_up":{"flow":…,"standing":{…}}}]}`, from
    /// the root of the tree down. `rule` is `stayed`, `visited` or `bulk` (then with `bulk_rounds`) in a drr node,
    /// `lowest_score` or `below_its_slots` in a share node, `largest_load` or `late` in a load node. A standing says
    /// of which `kind` of node it is, and has its numbers under names with their units.
    pub fn write_decision(&mut self, at: Micros, decision: &Decision) -> io::Result<()> {
        self.write_line(|json| decision::decision(json, at, decision))
    }

    /// Passes on what `W` has buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// Gives back what is written to, without flushing it.
    pub fn into_inner(self) -> W {
        self.output
    }

    fn write_line(&mut self, write: impl FnOnce(&mut Json)) -> io::Result<()> {
        self.line.clear();
        write(&mut self.line);
        self.line.end_line();
        self.output.write_all(self.line.as_str().as_bytes())
    }
}
