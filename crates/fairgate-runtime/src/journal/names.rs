//! The names of a journal's files: `00000012-next.jsonl`.

use std::fmt;

/// Why a file begins, the last part of its name. Each file begins with a snapshot and replays by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A process began.
    Start,
    /// The file before was full: this one goes on exactly where that one ends.
    Next,
    /// Events were lost after the end of the file before.
    Gap,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Start, Self::Next, Self::Gap];

    fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Next => "next",
            Self::Gap => "gap",
        }
    }
}

/// The name of a file of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileName {
    /// Its place in the order of files.
    pub(crate) number: u64,
    /// Why it begins.
    pub(crate) kind: Kind,
}

/// What a file is called until its first line is whole.
pub(crate) const UNFINISHED: &str = "unfinished.tmp";

impl FileName {
    /// Reads a name; `None` where it is not that of a journal.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (number, kind) = name.strip_suffix(".jsonl")?.split_once('-')?;
        let digits = number.len() >= 8 && number.bytes().all(|byte| byte.is_ascii_digit());
        let kind = Kind::ALL.into_iter().find(|k| k.name() == kind)?;
        Some(Self { number: number.parse().ok().filter(|_| digits)?, kind })
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08}-{}.jsonl", self.number, self.kind.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reads_back() {
        for (number, kind) in [(0, Kind::Start), (99_999_999, Kind::Next), (100_000_000, Kind::Gap)]
        {
            let name = FileName { number, kind };
            assert_eq!(FileName::parse(&name.to_string()), Some(name));
        }
    }

    #[test]
    fn other_names_are_no_journals() {
        for name in ["", "1-start.jsonl", "00000001-stop.jsonl", "00000001-gap.json", UNFINISHED] {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }
}
