//! `cargo xtask fuzz`: runs libFuzzer on the targets in `fuzz/`, for a limited time.

use std::fs;
use std::path::Path;

use crate::step::XtaskStep;
use crate::{XtaskError, cargo, tools};

/// Default time for which each target is fuzzed, in seconds.
const SECONDS: u32 = 60;
/// Time after which an input counts as a hang, in seconds.
const HANG_SECONDS: u32 = 20;

pub(crate) fn steps(root: &Path, args: &[&str]) -> Result<Vec<XtaskStep>, XtaskError> {
    let asked = FuzzArguments::parse(args)?;
    let known = targets(root)?;
    let chosen = match asked.target {
        None => known,
        Some(target) if known.iter().any(|k| k == target) => vec![target.to_owned()],
        Some(target) => {
            let known = known.join(", ");
            return Err(XtaskError(format!("no such fuzz target: `{target}`; there are {known}")));
        }
    };
    let mut steps = tools::need_debian("c++", "g++");
    steps.extend(tools::need_cargo("cargo-fuzz"));
    for target in chosen {
        steps.push(fuzz(root, &target, asked.seconds)?);
    }
    Ok(steps)
}

/// Returns the step that fuzzes one target. libFuzzer starts from the inputs in `fuzz/corpus`, and
/// uses the words in `fuzz/dictionaries` if the target has a dictionary. New inputs are written to
/// `fuzz/target/corpus`, which is not part of the repository.
fn fuzz(root: &Path, target: &str, seconds: u32) -> Result<XtaskStep, XtaskError> {
    let found = format!("fuzz/target/corpus/{target}");
    fs::create_dir_all(root.join(&found))
        .map_err(|error| XtaskError(format!("cannot make {found}: {error}")))?;
    let seeds = format!("fuzz/corpus/{target}");
    let total = format!("-max_total_time={seconds}");
    let hang = format!("-timeout={HANG_SECONDS}");
    let words = format!("fuzz/dictionaries/{target}.dict");
    let dictionary = format!("-dict={words}");
    let mut args = vec!["fuzz", "run", target, &found, &seeds, "--", &total, &hang];
    if root.join(&words).is_file() {
        args.push(&dictionary);
    }
    // Sanitizers and coverage need unstable compiler flags.
    Ok(cargo(&format!("fuzz {target}"), &args).env("RUSTC_BOOTSTRAP", "1"))
}

/// Returns the names of the fuzz targets, which are the files in `fuzz/fuzz_targets`, sorted.
fn targets(root: &Path) -> Result<Vec<String>, XtaskError> {
    let dir = root.join("fuzz/fuzz_targets");
    let unreadable = |error| XtaskError(format!("cannot read {}: {error}", dir.display()));
    let mut names = Vec::new();
    for entry in fs::read_dir(&dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|e| e == "rs") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

#[derive(Debug, PartialEq, Eq)]
struct FuzzArguments<'a> {
    target: Option<&'a str>,
    seconds: u32,
}

impl<'a> FuzzArguments<'a> {
    fn parse(args: &[&'a str]) -> Result<Self, XtaskError> {
        let mut asked = Self { target: None, seconds: SECONDS };
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            match arg {
                "--seconds" => asked.seconds = seconds(args.next())?,
                target if !target.starts_with('-') && asked.target.is_none() => {
                    asked.target = Some(target);
                }
                other => return Err(XtaskError(format!("fuzz does not understand `{other}`"))),
            }
        }
        Ok(asked)
    }
}

/// Parses the number of seconds. It must be at least 1, because libFuzzer takes 0 as "no limit".
fn seconds(value: Option<&&str>) -> Result<u32, XtaskError> {
    value
        .and_then(|v| v.parse().ok())
        .filter(|&n| n >= 1)
        .ok_or_else(|| XtaskError("--seconds needs a whole number, 1 or more".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_and_seconds_come_in_any_order() {
        let plain = FuzzArguments { target: None, seconds: SECONDS };
        assert_eq!(FuzzArguments::parse(&[]), Ok(plain));
        let both = || Ok(FuzzArguments { target: Some("pool_ops"), seconds: 5 });
        assert_eq!(FuzzArguments::parse(&["pool_ops", "--seconds", "5"]), both());
        assert_eq!(FuzzArguments::parse(&["--seconds", "5", "pool_ops"]), both());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for bad in
            [&["--seconds"][..], &["--seconds", "0"], &["--seconds", "x"], &["a", "b"], &["-x"]]
        {
            assert!(FuzzArguments::parse(bad).is_err(), "{bad:?}");
        }
    }
}
