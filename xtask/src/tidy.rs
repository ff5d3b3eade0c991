//! `cargo xtask tidy`: measures the language of the code, and whether each rule is written out in
//! only one file.
//!
//! Each [`Measure`] is a number that must not rise. The file `xtask/tidy.ratchet` has the greatest
//! allowed value of each measure. If a measure exceeds it, tidy fails and prints the measure's
//! offenders. If a measure is lower, `cargo xtask tidy --lower` writes the new value to the file.

mod circles;
mod homes;
mod json_fields;
mod prose;
mod source;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use self::source::SourceTree;
use crate::XtaskError;
use crate::step::XtaskStep;

/// Path of the file with the greatest allowed values, relative to the workspace's root.
const RATCHET: &str = "xtask/tidy.ratchet";

/// Number of offenders that are printed for each measure, unless `--all` is given.
const OFFENDERS_SHOWN: usize = 8;

/// A measured number, and the lines of source that it counts.
#[derive(Debug, PartialEq)]
struct Measure {
    /// Name of the measure in the ratchet file.
    name: &'static str,
    /// Description of the measure, for the table.
    about: &'static str,
    /// Measured value in tenths, so that percentages can be compared exactly.
    tenths: u64,
    unit: Unit,
    /// Greatest value that the project aims for, in tenths.
    bar_tenths: u64,
    /// One line of text for each offender, with its file and line.
    offenders: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    Percent,
    Places,
}

impl Measure {
    /// Creates a measure whose value is the number of offenders in percent of `of`.
    fn percent(
        name: &'static str,
        about: &'static str,
        bar: u64,
        of: usize,
        offenders: Vec<String>,
    ) -> Self {
        let tenths = (offenders.len() * 1000).checked_div(of).unwrap_or(0) as u64;
        Self { name, about, tenths, unit: Unit::Percent, bar_tenths: bar * 10, offenders }
    }

    /// Creates a measure whose value is the number of offenders.
    fn places(name: &'static str, about: &'static str, bar: u64, offenders: Vec<String>) -> Self {
        let tenths = offenders.len() as u64 * 10;
        Self { name, about, tenths, unit: Unit::Places, bar_tenths: bar * 10, offenders }
    }

    /// Formats a value of this measure with its unit.
    fn show(&self, tenths: u64) -> String {
        match self.unit {
            Unit::Percent => format!("{}.{} %", tenths / 10, tenths % 10),
            Unit::Places => format!("{}", tenths / 10),
        }
    }
}

/// Returns the step of `cargo xtask lint` that runs this program with `tidy`.
pub(crate) fn step() -> XtaskStep {
    crate::cargo("tidy", &["run", "--quiet", "--package", "xtask", "--", "tidy"])
}

/// Measures the workspace, prints the table, and fails if a measure is higher than the ratchet file
/// allows.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<(), XtaskError> {
    let (lower, all) = match args {
        [] => (false, false),
        ["--lower"] => (true, false),
        ["--all"] => (false, true),
        other => {
            let other = other.join(" ");
            return Err(XtaskError(format!(
                "no such options of tidy: `{other}`; there are `--all` (print every offender) and `--lower` (write lower numbers down)"
            )));
        }
    };
    let tree = SourceTree::read(root)?;
    let measures = measure(&tree);
    let path = root.join(RATCHET);
    let text = fs::read_to_string(&path)
        .map_err(|error| XtaskError(format!("cannot read {RATCHET}: {error}")))?;
    let allowed = parse_ratchet(&text)?;
    print!("{}", table(&measures, &allowed));
    let shown = if all { usize::MAX } else { OFFENDERS_SHOWN };
    for measure in measures.iter().filter(|measure| all || exceeds(measure, &allowed)) {
        print!("{}", offenders(measure, shown));
    }
    if let Some(names) = exceeding(&measures, &allowed) {
        return Err(XtaskError(format!(
            "{names} may only fall: mend the places listed above (`cargo xtask tidy --all` lists all)"
        )));
    }
    if lower {
        fs::write(&path, ratchet(&measures))
            .map_err(|error| XtaskError(format!("cannot write {RATCHET}: {error}")))?;
    }
    Ok(())
}

fn measure(tree: &SourceTree) -> Vec<Measure> {
    let mut measures = prose::measures(tree);
    measures.extend(homes::measures(tree));
    measures.push(circles::measure(tree));
    measures.push(json_fields::measure(tree));
    measures
}

/// Parses lines of the form `name = value`, with at most one digit after the decimal point. Returns
/// the values in tenths.
fn parse_ratchet(text: &str) -> Result<BTreeMap<String, u64>, XtaskError> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines.map(parse_ratchet_line).collect()
}

fn parse_ratchet_line(line: &str) -> Result<(String, u64), XtaskError> {
    let bad = || XtaskError(format!("{RATCHET}: `{line}` is not `name = number`"));
    let (name, value) = line.split_once('=').ok_or_else(bad)?;
    let (whole, tenth) = value.trim().split_once('.').unwrap_or((value.trim(), "0"));
    let whole: u64 = whole.parse().map_err(|_| bad())?;
    let tenth: u64 = tenth.parse().ok().filter(|tenth| *tenth < 10).ok_or_else(bad)?;
    Ok((name.trim().to_owned(), whole * 10 + tenth))
}

fn ratchet(measures: &[Measure]) -> String {
    let mut text =
        "# Written by `cargo xtask tidy --lower`. Each number may only fall.\n".to_owned();
    for Measure { name, tenths, unit, .. } in measures {
        let _ = match unit {
            Unit::Percent => writeln!(text, "{name} = {}.{}", tenths / 10, tenths % 10),
            Unit::Places => writeln!(text, "{name} = {}", tenths / 10),
        };
    }
    text
}

/// Returns whether a measure is higher than the ratchet file allows. If the file does not name the
/// measure, it must be 0.
fn exceeds(measure: &Measure, allowed: &BTreeMap<String, u64>) -> bool {
    measure.tenths > allowed.get(measure.name).copied().unwrap_or(0)
}

fn exceeding(measures: &[Measure], allowed: &BTreeMap<String, u64>) -> Option<String> {
    let names: Vec<_> =
        measures.iter().filter(|m| exceeds(m, allowed)).map(|m| format!("`{}`", m.name)).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn table(measures: &[Measure], allowed: &BTreeMap<String, u64>) -> String {
    let width = measures.iter().map(|m| m.about.chars().count()).max().unwrap_or(0);
    let mut text = format!("{:width$}  {:>8}  {:>8}  {:>8}\n", "", "now", "allowed", "aim");
    for measure in measures {
        let allowed = allowed.get(measure.name).copied().unwrap_or(0);
        let [now, allowed, aim] =
            [measure.tenths, allowed, measure.bar_tenths].map(|tenths| measure.show(tenths));
        let _ = writeln!(text, "{:width$}  {now:>8}  {allowed:>8}  {aim:>8}", measure.about);
    }
    text
}

fn offenders(measure: &Measure, shown: usize) -> String {
    let mut text = format!("\n{} ({})\n", measure.about, measure.name);
    for offender in measure.offenders.iter().take(shown) {
        let _ = writeln!(text, "  {offender}");
    }
    let more = measure.offenders.len().saturating_sub(shown);
    if more > 0 {
        let _ = writeln!(text, "  … and {more} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &'static str, offenders: usize) -> Measure {
        Measure::places(name, "places", 0, vec!["a.rs:1".into(); offenders])
    }

    #[test]
    fn a_number_may_fall_and_not_rise() {
        let allowed = parse_ratchet("# a comment\n\nhomes = 2\n").expect("it is well formed");
        assert_eq!(exceeding(&[found("homes", 1), found("homes", 2)], &allowed), None);
        assert_eq!(exceeding(&[found("homes", 3)], &allowed), Some("`homes`".into()));
        assert_eq!(exceeding(&[found("new", 1)], &allowed), Some("`new`".into()));
    }

    #[test]
    fn the_ratchet_file_is_read_as_it_is_written() {
        let measures =
            [found("homes", 3), Measure::percent("docs", "docs", 2, 7, vec!["a.rs:1".into(); 2])];
        let text = ratchet(&measures);
        let read = parse_ratchet(&text).expect("it is well formed");
        assert_eq!(read, BTreeMap::from([("homes".into(), 30), ("docs".into(), 285)]));
        for bad in ["homes", "homes = many", "homes = 1.23", "homes = -1"] {
            assert!(parse_ratchet(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn offenders_are_shown_up_to_a_number() {
        let text = offenders(&found("homes", 3), 2);
        assert_eq!(text, "\nplaces (homes)\n  a.rs:1\n  a.rs:1\n  … and 1 more\n");
    }

    #[test]
    fn the_table_has_units() {
        let measures = [Measure::percent("docs", "short docs", 2, 8, vec![String::new(); 1])];
        let allowed = BTreeMap::from([("docs".into(), 130)]);
        let expected =
            "                 now   allowed       aim\nshort docs    12.5 %    13.0 %     2.0 %\n";
        assert_eq!(table(&measures, &allowed), expected);
    }
}
