//! Chooses the files of a replay.
//!
//! A pool's journal is a folder of files, each of which begins with a snapshot. Files whose names end in `-next` continue
//! exactly where the file before them ends; the others begin after a start or a gap. A replay reads files that continue
//! each other, and leaves out the snapshots between them.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use fairgate_core::units::Micros;
use fairgate_journal::JournalClock;
use fairgate_time::{UnixMicros, to_rfc3339};
use serde::Deserialize;

use crate::error::ReplayError;

/// Number of bytes at the beginning of a file in which its clock and the time of its snapshot are.
const HEAD_BYTES: u64 = 512;

/// Files and the time range of a replay.
#[derive(Clone, Debug)]
pub struct ReplayPlan {
    /// Name of the journal for error messages.
    pub(crate) name: String,
    /// Files in their order. Each file continues the one before it.
    pub(crate) files: Vec<PlannedFile>,
    /// Beginning of the range on the journal's clock; `None` for the beginning of the first file.
    pub(crate) since: Option<Micros>,
    /// End of the range on the journal's clock, exclusive; `None` for the end of the last file.
    pub(crate) until: Option<Micros>,
    /// Greatest number of lines to read; `None` for no limit.
    pub(crate) lines_max: Option<u64>,
    /// Beginning of the range as a time of day; `None` if the journal has no clock.
    pub(crate) begins: Option<UnixMicros>,
}

/// A file of a plan.
#[derive(Clone, Debug)]
pub(crate) struct PlannedFile {
    pub(crate) path: PathBuf,
    /// Number of bytes to read; `None` for all. A file that is being written is read up to its last whole line, as it
    /// was when the plan was made, so that two passes read the same.
    pub(crate) bytes: Option<u64>,
}

/// Time range of a replay, in times of day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayRange {
    /// Beginning of the range, inclusive; `None` for the beginning of the journal.
    pub since: Option<UnixMicros>,
    /// End of the range, exclusive; `None` for the end of the journal.
    pub until: Option<UnixMicros>,
}

/// The beginning of a journal file.
#[derive(Clone, Debug)]
struct JournalHead {
    path: PathBuf,
    number: u64,
    /// True if the file continues the one before.
    continues: bool,
    clock: Option<JournalClock>,
    /// Time of the file's snapshot on the journal's clock.
    at: Micros,
}

impl JournalHead {
    /// Returns the time of day at which the file begins; `None` without a clock.
    fn begins(&self) -> Option<UnixMicros> {
        self.clock.map(|clock| time_of_day(clock, self.at))
    }
}

/// Returns the time of day of a moment on the journal's clock.
pub(crate) fn time_of_day(clock: JournalClock, at: Micros) -> UnixMicros {
    let signed = |micros: u64| i64::try_from(micros).unwrap_or(i64::MAX);
    let passed = signed(at.0).saturating_sub(signed(clock.at.0));
    UnixMicros(signed(clock.unix_us).saturating_add(passed))
}

/// Returns the moment on the journal's clock of a time of day; 0 for a time before the clock began.
fn on_clock(clock: JournalClock, time: UnixMicros) -> Micros {
    let signed = |micros: u64| i64::try_from(micros).unwrap_or(i64::MAX);
    let passed = time.0.saturating_sub(signed(clock.unix_us));
    Micros(u64::try_from(signed(clock.at.0).saturating_add(passed)).unwrap_or(0))
}

impl ReplayPlan {
    /// Plans to read one file, or any input that the caller opens under this name.
    pub fn of_file(path: &Path, range: ReplayRange) -> Result<Self, ReplayError> {
        let name = path.display().to_string();
        let file = PlannedFile { path: path.to_owned(), bytes: None };
        let mut plan = Self {
            name,
            files: vec![file],
            since: None,
            until: None,
            lines_max: None,
            begins: None,
        };
        if range != ReplayRange::default() {
            let head = head(path.to_owned(), 0, false).map_err(input(&plan.name))?;
            plan.set_range(&head, range)?;
        }
        Ok(plan)
    }

    /// Plans to read the files of a folder that cover a time range. Without `since`, the range begins where the newest
    /// unbroken run of files does.
    pub fn of_folder(folder: &Path, range: ReplayRange) -> Result<Self, ReplayError> {
        let name = folder.display().to_string();
        let heads = heads(folder).map_err(input(&name))?;
        let Some(oldest) = heads.first() else { return Err(ReplayError::NoFiles { folder: name }) };
        let first = match range.since {
            None => heads.iter().rposition(|head| !head.continues).unwrap_or(0),
            Some(since) => {
                // A file that continues another one at this very moment may lack events of the moment.
                let begins = |head: &JournalHead| {
                    head.begins().is_some_and(|at| at < since || (at == since && !head.continues))
                };
                match heads.iter().rposition(begins) {
                    Some(first) => first,
                    None => return Err(not_kept(name, oldest)),
                }
            }
        };
        let is_in_range = |head: &JournalHead| match (range.until, head.begins()) {
            (Some(until), Some(begins)) => begins < until,
            _ => true,
        };
        let mut files = Vec::new();
        for (place, head) in heads.iter().enumerate().skip(first) {
            if place > first && !is_in_range(head) {
                break;
            }
            let follows = place > first && head.number == heads[place - 1].number + 1;
            if place > first && !(head.continues && follows) {
                let resumed = head.begins().map(to_rfc3339).unwrap_or_else(|| "a file".into());
                return Err(ReplayError::Interrupted { folder: name, resumed });
            }
            let bytes = Some(whole_lines(&head.path).map_err(input(&name))?);
            files.push(PlannedFile { path: head.path.clone(), bytes });
        }
        let head = &heads[first];
        let begins = head.begins();
        let mut plan = Self { name, files, since: None, until: None, lines_max: None, begins };
        if range != ReplayRange::default() {
            plan.set_range(head, range)?;
        }
        Ok(plan)
    }

    /// Limits the number of lines that are read.
    pub fn with_lines_max(self, lines_max: u64) -> Self {
        Self { lines_max: Some(lines_max), ..self }
    }

    /// Returns the time of day at which the range begins; `None` if the journal has no clock.
    pub fn begins(&self) -> Option<UnixMicros> {
        self.begins
    }

    /// Returns the number of bytes of all files together; `None` if one of them has no length.
    pub fn bytes(&self) -> Option<u64> {
        let length = |file: &PlannedFile| match file.bytes {
            Some(bytes) => Some(bytes),
            None => fs::metadata(&file.path).ok().filter(fs::Metadata::is_file).map(|it| it.len()),
        };
        self.files.iter().map(length).sum()
    }

    fn set_range(&mut self, head: &JournalHead, range: ReplayRange) -> Result<(), ReplayError> {
        let Some(clock) = head.clock else {
            return Err(ReplayError::NoClock { name: head.path.display().to_string() });
        };
        let begins = time_of_day(clock, head.at);
        let is_empty = range.until.is_some_and(|until| until <= range.since.unwrap_or(begins));
        if is_empty {
            return Err(ReplayError::EmptyRange { name: self.name.clone() });
        }
        self.since = range.since.map(|since| on_clock(clock, since));
        self.until = range.until.map(|until| on_clock(clock, until));
        self.begins = Some(range.since.unwrap_or(begins).max(begins));
        Ok(())
    }
}

fn not_kept(folder: String, oldest: &JournalHead) -> ReplayError {
    match oldest.begins() {
        Some(begins) => ReplayError::NotKept { folder, oldest: to_rfc3339(begins) },
        None => ReplayError::NoClock { name: oldest.path.display().to_string() },
    }
}

fn input(name: &str) -> impl Fn(io::Error) -> ReplayError {
    move |source| ReplayError::Input { name: name.to_owned(), source }
}

/// Returns the journal files of a folder, in their order.
fn heads(folder: &Path) -> io::Result<Vec<JournalHead>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some((number, kind)) = name.strip_suffix(".jsonl").and_then(|it| it.split_once('-'))
        else {
            continue;
        };
        if let Ok(number) = number.parse::<u64>() {
            let continues = kind == "next";
            found.push((number, continues, path));
        }
    }
    found.sort_unstable();
    found.into_iter().map(|(number, continues, path)| head(path, number, continues)).collect()
}

/// Reads the clock of a file and the time of its snapshot, which are at the beginning of its first line.
fn head(path: PathBuf, number: u64, continues: bool) -> io::Result<JournalHead> {
    let mut start = Vec::new();
    File::open(&path)?.take(HEAD_BYTES).read_to_end(&mut start)?;
    let text = String::from_utf8_lossy(&start);
    #[derive(Deserialize)]
    struct ClockFields {
        at: u64,
        unix_us: u64,
    }
    let clock = text.split_once("\"clock\":").and_then(|(_, rest)| {
        let object = rest.get(..=rest.find('}')?)?;
        serde_json::from_str::<ClockFields>(object).ok()
    });
    let clock = clock.map(|clock| JournalClock { at: Micros(clock.at), unix_us: clock.unix_us });
    let now = text.split_once("\"snapshot\":{\"now_us\":").and_then(|(_, rest)| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    });
    Ok(JournalHead { path, number, continues, clock, at: Micros(now.unwrap_or(0)) })
}

/// Returns the number of bytes up to the last line break. Another process may be writing the rest.
fn whole_lines(path: &Path) -> io::Result<u64> {
    const STEP: u64 = 1 << 16;
    let mut file = File::open(path)?;
    let mut end = file.metadata()?.len();
    while end > 0 {
        let begin = end.saturating_sub(STEP);
        file.seek(SeekFrom::Start(begin))?;
        let mut part = Vec::new();
        file.by_ref().take(end - begin).read_to_end(&mut part)?;
        if let Some(place) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(begin + u64::try_from(place).unwrap_or(0) + 1);
        }
        end = begin;
    }
    Ok(0)
}

/// Opens a file of a plan.
pub(crate) fn open(file: &PlannedFile) -> io::Result<Box<dyn Read>> {
    let opened = File::open(&file.path)?;
    Ok(match file.bytes {
        Some(bytes) => Box::new(opened.take(bytes)),
        None => Box::new(opened),
    })
}

/// Returns a buffered reader of an opened file.
pub(crate) fn buffered(input: Box<dyn Read>) -> Box<dyn BufRead> {
    Box::new(BufReader::with_capacity(1 << 16, input))
}
