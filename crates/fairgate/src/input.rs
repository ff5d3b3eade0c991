//! Reads the files that commands take.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// Returns the whole text of a file, or of standard input if the path is `-`.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    if path != Path::new("-") {
        return fs::read_to_string(path);
    }
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text)?;
    Ok(text)
}
