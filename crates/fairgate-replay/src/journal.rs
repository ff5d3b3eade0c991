//! Opens a journal, and reads the pool that it starts from and its events with their line numbers.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead, Read};
use std::path::Path;

use fairgate_core::Pool;
use fairgate_core::event::Event;
use fairgate_core::units::Micros;
use fairgate_journal::{JournalClock, JournalReader};
use fairgate_time::to_rfc3339;

use crate::edition::OtherEdition;
use crate::error::ReplayError;
use crate::files::{self, PlannedFile, ReplayPlan};
use crate::steps::SilentListener;

/// Opens the input of a file's path.
pub type InputOpener<'a> = &'a dyn Fn(&Path) -> io::Result<Box<dyn Read>>;
/// Called after each line with the number of lines and bytes that were read so far.
pub type ProgressListener = Box<dyn FnMut(u64, u64)>;

/// A journal that is being read: one file, or several that continue each other.
pub struct ReplayJournal {
    name: String,
    reader: JournalReader<Box<dyn BufRead>>,
    clock: Option<JournalClock>,
    more: VecDeque<PlannedFile>,
    /// Lines and bytes of the files before this one.
    lines_before: u64,
    bytes_before: u64,
    /// First event of the time range, which was read while the events before it were applied.
    pending: Option<ReplayEntry>,
    until: Option<Micros>,
    lines_max: Option<u64>,
    progress: Option<ProgressListener>,
}

/// An event of a journal, with the number of its line.
#[derive(Debug)]
pub(crate) struct ReplayEntry {
    pub(crate) line: u64,
    pub(crate) at: Micros,
    pub(crate) event: Event,
}

impl ReplayJournal {
    /// Opens the files of a plan. Returns the pool at the beginning of the plan's time range, and the journal from there
    /// on. The events before the range are applied under the journal's own policy.
    pub fn open(plan: &ReplayPlan) -> Result<(Pool, Self), ReplayError> {
        Self::open_files(plan, None)
    }

    /// Opens the one file of a plan through `opener`, as [`ReplayJournal::open`] opens files. `name` is the name for
    /// error messages.
    pub fn open_with(
        plan: &ReplayPlan,
        name: &str,
        opener: InputOpener<'_>,
    ) -> Result<(Pool, Self), ReplayError> {
        Self::open_files(plan, Some((name, opener)))
    }

    fn open_files(
        plan: &ReplayPlan,
        special: Option<(&str, InputOpener<'_>)>,
    ) -> Result<(Pool, Self), ReplayError> {
        let mut more: VecDeque<PlannedFile> = plan.files.iter().cloned().collect();
        let Some(first) = more.pop_front() else {
            return Err(ReplayError::NoFiles { folder: plan.name.clone() });
        };
        let (name, input) = match special {
            Some((name, opener)) => (name.to_owned(), opener(&first.path)),
            None => (first.path.display().to_string(), files::open(&first)),
        };
        let input = input.map_err(|source| ReplayError::Input { name: name.clone(), source })?;
        let wrong = |source| ReplayError::Journal { name: name.clone(), source };
        let (start, reader) = JournalReader::open(files::buffered(input)).map_err(wrong)?;
        let mut pool = start.into_pool().map_err(wrong)?;
        let clock = reader.clock();
        let mut journal = Self {
            name,
            reader,
            clock,
            more,
            lines_before: 0,
            bytes_before: 0,
            pending: None,
            until: plan.until,
            lines_max: plan.lines_max,
            progress: None,
        };
        if let Some(since) = plan.since {
            journal.skip_until(since, &mut pool)?;
        }
        Ok((pool, journal))
    }

    /// Applies the events before `since`.
    fn skip_until(&mut self, since: Micros, pool: &mut Pool) -> Result<(), ReplayError> {
        while let Some(entry) = self.next_entry()? {
            if entry.at >= since {
                self.pending = Some(entry);
                break;
            }
            pool.apply(entry.at, entry.event, &mut SilentListener)?;
        }
        Ok(())
    }

    /// Calls `progress` after each line from now on.
    pub fn set_progress(&mut self, progress: ProgressListener) {
        self.progress = Some(progress);
    }

    /// Returns the journal's name for error messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the relation of the journal's times to the time of day; `None` if the journal states none.
    pub fn clock(&self) -> Option<JournalClock> {
        self.clock
    }

    /// Returns the number of lines that were read so far, over all files.
    pub fn lines(&self) -> u64 {
        self.lines_before + self.reader.line()
    }

    /// Returns the edition of the scheduling rules that wrote the journal; `None` if it is this program's edition.
    pub fn other_edition(&self) -> Option<OtherEdition> {
        let is_other = self.reader.is_of_other_edition();
        is_other.then(|| OtherEdition::new(self.reader.machine()))
    }

    /// Returns the next event; `None` at the end of the time range.
    pub(crate) fn next_entry(&mut self) -> Result<Option<ReplayEntry>, ReplayError> {
        let entry = match self.pending.take() {
            Some(entry) => entry,
            None => match self.read_entry()? {
                Some(entry) => entry,
                None => return Ok(None),
            },
        };
        if self.until.is_some_and(|until| entry.at >= until) {
            self.more.clear();
            return Ok(None);
        }
        Ok(Some(entry))
    }

    fn read_entry(&mut self) -> Result<Option<ReplayEntry>, ReplayError> {
        loop {
            let next = self.reader.next_event();
            let wrong = |source| ReplayError::Journal { name: self.name.clone(), source };
            if let Some((at, event)) = next.map_err(wrong)? {
                let line = self.lines();
                self.check_length(line, at)?;
                if let Some(progress) = &mut self.progress {
                    progress(line, self.bytes_before + self.reader.bytes_read());
                }
                return Ok(Some(ReplayEntry { line, at, event }));
            }
            let Some(file) = self.more.pop_front() else { return Ok(None) };
            self.open_next(&file)?;
        }
    }

    /// Opens a file that continues this one. The file's snapshot is the state that the replay
    /// already has.
    fn open_next(&mut self, file: &PlannedFile) -> Result<(), ReplayError> {
        self.lines_before += self.reader.line();
        self.bytes_before += self.reader.bytes_read();
        self.name = file.path.display().to_string();
        let input = files::open(file);
        let name = || self.name.clone();
        let input = input.map_err(|source| ReplayError::Input { name: name(), source })?;
        let opened = JournalReader::open(files::buffered(input));
        let (_, reader) = opened.map_err(|source| ReplayError::Journal { name: name(), source })?;
        self.reader = reader;
        Ok(())
    }

    fn check_length(&self, line: u64, at: Micros) -> Result<(), ReplayError> {
        match self.lines_max {
            Some(lines_max) if line > lines_max => {
                let until = match self.clock {
                    Some(clock) => to_rfc3339(files::time_of_day(clock, at)),
                    None => format!("{} µs", at.0),
                };
                Err(ReplayError::TooLong { lines_max, reached: line - 1, until })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for ReplayJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayJournal").field("name", &self.name).finish_non_exhaustive()
    }
}
