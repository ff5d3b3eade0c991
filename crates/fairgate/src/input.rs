//! Files that commands read.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

/// The whole text of a file; of standard input where the path is `-`.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    if path != Path::new("-") {
        return fs::read_to_string(path);
    }
    let mut text = String::new();
    io::stdin().lock().read_to_string(&mut text)?;
    Ok(text)
}
