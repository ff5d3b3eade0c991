//! What names, texts, numbers and moments may be.

use fairgate_money::UnixMicros;

use crate::error::FleetError;

/// How long a project's, an agent's or a workspace's name may be, in bytes.
pub(crate) const NAME_MAX: usize = 64;
/// How long a task's name may be, in bytes.
pub(crate) const TASK_MAX: usize = 128;
/// How long a reason or a sign of progress may be, in bytes; what is longer is cut.
pub(crate) const NOTE_MAX: usize = 4 << 10;
/// The largest budget, in tokens: it still fits every number that it is compared with.
pub(crate) const BUDGET_MAX: u64 = 1_000_000_000_000_000;
/// The most that a task may be expected to use, or said to have used, in tokens.
pub(crate) const TASK_TOKENS_MAX: u64 = 1_000_000_000_000;
/// The first moment of the year 10000.
const MOMENT_MAX: UnixMicros = UnixMicros(253_402_300_800_000_000);

pub(crate) fn invalid(field: impl Into<String>, problem: impl Into<String>) -> FleetError {
    FleetError::Invalid { field: field.into(), problem: problem.into() }
}

/// A field that names something that is not there.
pub(crate) fn unknown(field: impl Into<String>, problem: impl Into<String>) -> FleetError {
    FleetError::Unknown { field: field.into(), problem: problem.into() }
}

/// A name: letters, digits, `.`, `_` and `-`, beginning with a letter or digit.
pub(crate) fn name(field: &str, name: &str, max: usize) -> Result<(), FleetError> {
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_next = |byte: u8| is_first(byte) || matches!(byte, b'.' | b'_' | b'-');
    let begins_well = name.bytes().next().is_some_and(is_first);
    if begins_well && name.bytes().all(is_next) && name.len() <= max {
        return Ok(());
    }
    let shown = cut(name, 80);
    let problem = format!(
        "{shown:?} is no name: 1 to {max} of a-z, 0-9, \".\", \"_\" and \"-\", beginning with a letter or digit"
    );
    Err(invalid(field, problem))
}

/// A text that must say something and may not be longer than this, in bytes.
pub(crate) fn text(field: &str, text: &str, max: usize) -> Result<(), FleetError> {
    if text.trim().is_empty() {
        return Err(invalid(field, "must not be empty"));
    }
    if text.len() > max {
        let problem = format!("has {} bytes, and at most {max} are allowed", text.len());
        return Err(invalid(field, problem));
    }
    if text.contains('\0') {
        return Err(invalid(field, "must not contain the character NUL"));
    }
    Ok(())
}

/// A text of one line.
pub(crate) fn line(field: &str, line: &str, max: usize) -> Result<(), FleetError> {
    text(field, line, max)?;
    match line.chars().any(char::is_control) {
        true => Err(invalid(field, "must be one line without control characters")),
        false => Ok(()),
    }
}

/// The beginning of a text, at most this many bytes; databases take no NUL.
pub(crate) fn cut(text: &str, max: usize) -> String {
    let end = text.floor_char_boundary(max);
    text[..end].replace('\0', "\u{fffd}")
}

/// A reason, cut; none where it says nothing.
pub(crate) fn note(text: Option<&str>) -> Option<String> {
    text.map(str::trim).filter(|text| !text.is_empty()).map(|text| cut(text, NOTE_MAX))
}

/// A number of tokens, as the database has it.
pub(crate) fn tokens(field: &str, tokens: u64, max: u64) -> Result<i64, FleetError> {
    let too_many = || invalid(field, format!("is {tokens}, and at most {max} tokens are allowed"));
    i64::try_from(tokens).ok().filter(|_| tokens <= max).ok_or_else(too_many)
}

/// A moment between 1970 and the year 9999.
pub(crate) fn moment(field: &str, moment: UnixMicros) -> Result<(), FleetError> {
    if (UnixMicros(0)..MOMENT_MAX).contains(&moment) {
        return Ok(());
    }
    let problem =
        format!("{} is no moment: microseconds since 1970, before the year 10000", moment.0);
    Err(invalid(field, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in ["a", "0", "api-2.x_y", &"a".repeat(64)] {
            assert!(name("id", good, NAME_MAX).is_ok(), "{good}");
        }
        for bad in ["", "-a", ".a", "A", "a b", "a/b", "ä", "a\0", &"a".repeat(65)] {
            let error = name("tasks[3].id", bad, NAME_MAX).unwrap_err();
            assert!(error.to_string().starts_with("tasks[3].id: "), "{error}");
        }
    }

    #[test]
    fn texts_are_cut_between_characters_and_without_nul() {
        assert_eq!(cut("aäb", 2), "a");
        assert_eq!(cut("a\0b", 10), "a\u{fffd}b");
        assert_eq!(note(Some("  \n ")), None);
        assert_eq!(note(Some(&"x".repeat(5000))).unwrap().len(), NOTE_MAX);
    }

    #[test]
    fn moments_lie_between_1970_and_the_year_9999() {
        for bad in [i64::MIN, -1, 253_402_300_800_000_000, i64::MAX] {
            assert!(moment("until", UnixMicros(bad)).is_err(), "{bad}");
        }
        assert!(moment("until", UnixMicros(0)).is_ok());
    }

    #[test]
    fn texts_are_bounded() {
        assert!(text("prompt", "do it\nnow", 9).is_ok());
        for bad in ["", " \n", "0123456789", "a\0b"] {
            assert!(text("prompt", bad, 9).is_err(), "{bad:?}");
        }
        assert!(line("title", "a\nb", 9).is_err());
        assert!(tokens("budget", 11, 10).is_err());
        assert_eq!(tokens("budget", 10, 10).unwrap(), 10);
    }
}
