//! Names of a journal's files, such as `00000012-next.jsonl`.

use std::fmt;

/// Reason why a file was begun, which is the last word of the file's name. Each file begins with a
/// snapshot and can be replayed without the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateJournalFileKind {
    /// The file is the first one that a process began, when it started the gate.
    Start,
    /// The previous file was full. The new file continues exactly at its end.
    Next,
    /// Events were lost after the end of the previous file.
    Gap,
}

impl GateJournalFileKind {
    const ALL: [Self; 3] = [Self::Start, Self::Next, Self::Gap];

    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Next => "next",
            Self::Gap => "gap",
        }
    }
}

/// The name of one file of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GateJournalFileName {
    /// Sequence number of the file in its journal, from 0.
    pub(crate) number: u64,
    /// Reason why the file was begun.
    pub(crate) kind: GateJournalFileKind,
}

/// Name of a file until its first line is complete.
pub(crate) const UNFINISHED: &str = "unfinished.tmp";

impl GateJournalFileName {
    /// Parses a name; `None` if it is not the name of a journal file.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (number, kind) = name.strip_suffix(".jsonl")?.split_once('-')?;
        let digits = number.len() >= 8 && number.bytes().all(|byte| byte.is_ascii_digit());
        let kind = GateJournalFileKind::ALL.into_iter().find(|k| k.name() == kind)?;
        Some(Self { number: number.parse().ok().filter(|_| digits)?, kind })
    }
}

impl fmt::Display for GateJournalFileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08}-{}.jsonl", self.number, self.kind.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back() {
        for (number, kind) in [
            (0, GateJournalFileKind::Start),
            (99_999_999, GateJournalFileKind::Next),
            (100_000_000, GateJournalFileKind::Gap),
        ] {
            let name = GateJournalFileName { number, kind };
            assert_eq!(GateJournalFileName::parse(&name.to_string()), Some(name));
        }
    }

    #[test]
    fn other_names_are_no_journals() {
        for name in ["", "1-start.jsonl", "00000001-stop.jsonl", "00000001-gap.json", UNFINISHED] {
            assert_eq!(GateJournalFileName::parse(name), None, "{name}");
        }
    }
}
