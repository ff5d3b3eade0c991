//! Writes the lines of a journal, or the decisions of a replay.

use std::io::{self, Write};

use fairgate_core::decision::Decision;
use fairgate_core::event::{Event, PoolConfig, WorkerState};
use fairgate_core::snapshot::Snapshot;
use fairgate_core::units::Micros;

use crate::clock::JournalClock;
use crate::write::json::JsonWriter;
use crate::write::{decision, event, header, snapshot};

/// Writes lines of a journal, or of decisions. Each line, except that of a snapshot, reaches `W` whole, in one call.
///
/// ```
/// use fairgate_core::event::Event;
/// use fairgate_core::units::Micros;
///
/// let mut writer = fairgate_journal::JournalWriter::new(Vec::new());
/// writer.write_event(Micros(9), &Event::Cancel { id: "r7".into() })?;
/// assert_eq!(writer.into_inner(), b"{\"at\":9,\"event\":\"cancel\",\"id\":\"r7\"}\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct JournalWriter<W> {
    output: W,
    line: JsonWriter,
    clock: Option<JournalClock>,
}

impl<W: Write> JournalWriter<W> {
    /// Creates a writer to `output`, which should be buffered if many lines are written at once.
    pub fn new(output: W) -> Self {
        Self { output, line: JsonWriter::default(), clock: None }
    }

    /// Makes the first line state two more facts: the time of day of one moment of the journal's clock, and the edition
    /// of the scheduling rules by which the pool decides. Both are information for readers, and no decision depends on
    /// them.
    ///
    /// ```
    /// use fairgate_core::event::PoolConfig;
    /// use fairgate_core::units::Micros;
    /// use fairgate_journal::{JournalClock, JournalReader, JournalWriter, parse_policy};
    ///
    /// let config = PoolConfig::new(2, parse_policy(r#"{"share":{"by":"tenant"}}"#)?);
    /// let clock = JournalClock { at: Micros(0), unix_us: 1_763_200_000_000_000 };
    /// let mut writer = JournalWriter::new(Vec::new()).with_clock(clock);
    /// writer.write_header(&config)?;
    /// let journal = writer.into_inner();
    /// let (_, reader) = JournalReader::open(&journal[..])?;
    /// assert_eq!(reader.clock(), Some(clock));
    /// assert_eq!(reader.machine(), Some(fairgate_journal::EDITION));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_clock(self, clock: JournalClock) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Writes the first line of a journal.
    ///
    /// A worker in the header must be up; any other state is an error of kind
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

    /// Writes the first line of a journal that continues from here: `{"fairgate_journal":1,"snapshot":{…}}`.
    ///
    /// A reader gets the same snapshot. A field that a first line or an event also has keeps its
    /// name from there. Most other fields have their names from [`Snapshot`], followed by their
    /// unit if they have one. Counters of 128 bits (deficits, virtual time, tokens served, …) are
    /// always JSON strings of decimal digits, because few readers of JSON have numbers so large.
    /// All other numbers are ordinary JSON numbers. Equal snapshots give equal bytes.
    ///
    /// The line is long if many requests wait, and it reaches `W` in many parts. So give a journal file its final name
    /// only after the whole line is written. Each worker must state exactly the fields that
    /// [`Pool::snapshot`](fairgate_core::Pool::snapshot) states. Otherwise the result is an error of kind
    /// [`InvalidInput`](io::ErrorKind::InvalidInput), and nothing is written.
    ///
    /// ```
    /// use fairgate_core::Pool;
    /// use fairgate_core::event::PoolConfig;
    /// use fairgate_journal::{JournalReader, JournalStart, JournalWriter, parse_policy};
    ///
    /// let pool = Pool::new(PoolConfig::new(2, parse_policy(r#"{"share":{"by":"tenant"}}"#)?));
    /// let mut writer = JournalWriter::new(Vec::new());
    /// writer.write_snapshot(&pool.snapshot())?;
    /// let (start, _) = JournalReader::open(&writer.into_inner()[..])?;
    /// assert_eq!(start, JournalStart::Snapshot(Box::new(pool.snapshot())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_snapshot(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        self.line.clear();
        snapshot::write(&mut self.line, &mut self.output, self.clock, snapshot)
    }

    /// Writes the line of an event.
    pub fn write_event(&mut self, at: Micros, event: &Event) -> io::Result<()> {
        self.write_line(|json| event::event(json, at, event))
    }

    /// Writes the line of a decision.
    ///
    /// A grant that carries a [`GrantExplanation`](fairgate_core::explain::GrantExplanation) has it in the field `why`:
    /// `{"cost":…,"levels":[{"by":…,"flow":…,"rule":…,"standing":{…},"runner_up":{"flow":…,"standing":{…}}}]}`, from
    /// the root of the tree down. `rule` is `stayed`, `visited` or `bulk` (then with `bulk_rounds`) in a drr node,
    /// `lowest_score` or `below_its_slots` in a share node, `largest_load` or `late` in a load node, `first_band` in a
    /// bands node. A `standing` names the `kind` of its node, and has the flow's numbers under names that include their
    /// units.
    pub fn write_decision(&mut self, at: Micros, decision: &Decision) -> io::Result<()> {
        self.write_line(|json| decision::decision(json, at, decision))
    }

    /// Flushes the output `W`.
    pub fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }

    /// Returns the output without flushing it.
    pub fn into_inner(self) -> W {
        self.output
    }

    fn write_line(&mut self, write: impl FnOnce(&mut JsonWriter)) -> io::Result<()> {
        self.line.clear();
        write(&mut self.line);
        self.line.end_line();
        self.output.write_all(self.line.as_str().as_bytes())
    }
}
