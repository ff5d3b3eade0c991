//! Checks names, texts, numbers and times in requests.

use fairgate_time::UnixMicros;

use crate::error::FleetError;

/// Maximum length of the name of a project, an agent or a workspace, in bytes.
pub(crate) const NAME_MAX: usize = 64;
/// Maximum length of the name of a task, in bytes.
pub(crate) const TASK_MAX: usize = 128;
/// Maximum length of a reason or progress text, in bytes. Longer texts are cut.
pub(crate) const NOTE_MAX: usize = 4 << 10;
/// Maximum budget of a project, in tokens. It fits into all number types with which budgets are
/// compared.
pub(crate) const BUDGET_MAX: u64 = 1_000_000_000_000_000;
/// Maximum estimate and maximum reported usage of a task, in tokens.
pub(crate) const TASK_TOKENS_MAX: u64 = 1_000_000_000_000;
/// Start of the year 10000. A time in a request must be earlier.
const MOMENT_MAX: UnixMicros = UnixMicros(253_402_300_800_000_000);

pub(crate) fn invalid(field: impl Into<String>, problem: impl Into<String>) -> FleetError {
    FleetError::Invalid { field: field.into(), problem: problem.into() }
}

/// Returns the error for a field that names something that does not exist.
pub(crate) fn unknown(field: impl Into<String>, problem: impl Into<String>) -> FleetError {
    FleetError::Unknown { field: field.into(), problem: problem.into() }
}

/// Checks that a name has 1 to `max` letters from a to z or A to Z, digits, `.`, `_` and `-`, and begins with a letter or digit.
pub(crate) fn check_name(field: &str, name: &str, max: usize) -> Result<(), FleetError> {
    let is_first = |byte: u8| byte.is_ascii_alphanumeric();
    let is_next = |byte: u8| is_first(byte) || matches!(byte, b'.' | b'_' | b'-');
    let begins_well = name.bytes().next().is_some_and(is_first);
    if begins_well && name.bytes().all(is_next) && name.len() <= max {
        return Ok(());
    }
    let shown = cut(name, 80);
    let problem = format!(
        "{shown:?} is no name: 1 to {max} of a-z, A-Z, 0-9, \".\", \"_\" and \"-\", beginning with a letter or digit"
    );
    Err(invalid(field, problem))
}

/// Checks the name of a task: `NAME`, or `PROJECT:NAME` with the task's own project. So a task of
/// another project can never have a name with this project and a colon.
pub(crate) fn check_task_name(field: &str, name: &str, project: &str) -> Result<(), FleetError> {
    match name.split_once(':') {
        None => check_name(field, name, TASK_MAX),
        Some((scope, own)) if scope == project => {
            check_name(field, own, TASK_MAX.saturating_sub(scope.len() + 1))
        }
        Some(_) => {
            let shown = cut(name, 80);
            let problem =
                format!("{shown:?} has a colon, and then the name must begin with \"{project}:\"");
            // The error is the same as for any other name of another project.
            Err(unknown(field, problem))
        }
    }
}

/// Checks that a text is not blank, has at most `max` bytes, and contains no NUL.
pub(crate) fn check_text(field: &str, text: &str, max: usize) -> Result<(), FleetError> {
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

/// Checks that a text is one line of at most `max` bytes without control characters.
pub(crate) fn check_line(field: &str, line: &str, max: usize) -> Result<(), FleetError> {
    check_text(field, line, max)?;
    match line.chars().any(char::is_control) {
        true => Err(invalid(field, "must be one line without control characters")),
        false => Ok(()),
    }
}

/// Returns the beginning of a text, at most `max` bytes. NUL is replaced, because databases do not accept it.
pub(crate) fn cut(text: &str, max: usize) -> String {
    let end = text.floor_char_boundary(max);
    text[..end].replace('\0', "\u{fffd}")
}

/// Trims a reason and cuts it at [`NOTE_MAX`] bytes. Returns `None` if the reason is absent or blank.
pub(crate) fn note(text: Option<&str>) -> Option<String> {
    text.map(str::trim).filter(|text| !text.is_empty()).map(|text| cut(text, NOTE_MAX))
}

/// Checks that a number of tokens is at most `max`, and converts the number to the database's type.
pub(crate) fn check_tokens(field: &str, tokens: u64, max: u64) -> Result<i64, FleetError> {
    let too_many = || invalid(field, format!("is {tokens}, and at most {max} tokens are allowed"));
    i64::try_from(tokens).ok().filter(|_| tokens <= max).ok_or_else(too_many)
}

/// Checks that a time lies between 1970 and the end of the year 9999.
pub(crate) fn check_moment(field: &str, moment: UnixMicros) -> Result<(), FleetError> {
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
        for good in ["a", "0", "api-2.x_y", "JIRA-1042", &"a".repeat(64)] {
            assert!(check_name("id", good, NAME_MAX).is_ok(), "{good}");
        }
        for bad in ["", "-a", ".a", "a b", "a/b", "ä", "a\0", &"a".repeat(65)] {
            let error = check_name("tasks[3].id", bad, NAME_MAX).unwrap_err();
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
            assert!(check_moment("until", UnixMicros(bad)).is_err(), "{bad}");
        }
        assert!(check_moment("until", UnixMicros(0)).is_ok());
    }

    #[test]
    fn texts_are_bounded() {
        assert!(check_text("prompt", "do it\nnow", 9).is_ok());
        for bad in ["", " \n", "0123456789", "a\0b"] {
            assert!(check_text("prompt", bad, 9).is_err(), "{bad:?}");
        }
        assert!(check_line("title", "a\nb", 9).is_err());
        assert!(check_tokens("budget", 11, 10).is_err());
        assert_eq!(check_tokens("budget", 10, 10).unwrap(), 10);
    }
}
