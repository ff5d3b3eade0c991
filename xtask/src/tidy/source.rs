//! Reads the project's files, and finds their types, doc comments and lines.

use std::fs;
use std::path::Path;

use crate::XtaskError;

/// All Rust files and pages of the project.
#[derive(Debug, Default)]
pub(super) struct SourceTree {
    /// Rust source of the crates and the Python binding, except tests.
    pub(super) product: Vec<SourceFile>,
    /// All other Rust source, which is that of tests, benches and chores.
    pub(super) tests: Vec<SourceFile>,
    /// Markdown pages of the whole project.
    pub(super) pages: Vec<SourceFile>,
    /// Paths of all files in the workspace, with `/` as the separator.
    pub(super) paths: Vec<String>,
}

/// The text of one file, with its path relative to the workspace's root.
#[derive(Debug)]
pub(super) struct SourceFile {
    pub(super) path: String,
    pub(super) text: String,
}

/// A doc comment. Its lines are joined by spaces.
#[derive(Debug, PartialEq)]
pub(super) struct DocComment {
    /// Number of the line on which the doc comment begins. The first line has the number 1.
    pub(super) line: usize,
    pub(super) text: String,
}

/// The definition of a struct, enum or trait in a file.
#[derive(Debug, PartialEq)]
pub(super) struct TypeDefinition {
    /// Number of the line with the definition. The first line has the number 1.
    pub(super) line: usize,
    pub(super) name: String,
}

/// Names of folders that are skipped, because their contents were not written for this project.
const SKIPPED_FOLDERS: [&str; 6] = ["target", ".git", "node_modules", "vendor", "corpus", ".venv"];

impl SourceTree {
    /// Reads all files of the workspace at this root.
    pub(super) fn read(root: &Path) -> Result<Self, XtaskError> {
        let mut tree = Self::default();
        tree.read_folder(root, "")?;
        tree.paths.sort();
        for files in [&mut tree.product, &mut tree.tests, &mut tree.pages] {
            files.sort_by(|a, b| a.path.cmp(&b.path));
        }
        Ok(tree)
    }

    fn read_folder(&mut self, root: &Path, folder: &str) -> Result<(), XtaskError> {
        let unreadable = |error| XtaskError(format!("cannot read `{folder}`: {error}"));
        for entry in fs::read_dir(root.join(folder)).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if entry.file_type().map_err(unreadable)?.is_dir() {
                if !SKIPPED_FOLDERS.contains(&name.as_str()) {
                    self.read_folder(root, &path)?;
                }
                continue;
            }
            if path.ends_with(".rs") || path.ends_with(".md") {
                let text = fs::read_to_string(entry.path())
                    .map_err(|error| XtaskError(format!("cannot read `{path}`: {error}")))?;
                self.add(SourceFile { path: path.clone(), text });
            }
            self.paths.push(path);
        }
        Ok(())
    }

    /// Adds a file to the pages, the product or the tests, depending on its path.
    fn add(&mut self, file: SourceFile) {
        let files = match &file.path {
            path if path.ends_with(".md") => &mut self.pages,
            path if is_product(path) => &mut self.product,
            _ => &mut self.tests,
        };
        files.push(file);
    }

    /// Creates a tree of files in memory.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            tree.paths.push((*path).into());
            tree.add(SourceFile { path: (*path).into(), text: (*text).into() });
        }
        tree
    }
}

/// Returns whether a Rust file is part of a crate or of the Python binding, and not a test.
fn is_product(path: &str) -> bool {
    let in_source = path.starts_with("bindings/python/src/")
        || (path.starts_with("crates/") && path.split('/').nth(2) == Some("src"));
    let mut parts = path.split('/').skip(3);
    in_source && !parts.any(|part| matches!(part, "tests" | "tests.rs" | "testing.rs"))
}

impl SourceFile {
    /// Returns the lines of the file up to its module of tests.
    pub(super) fn lines(&self) -> impl Iterator<Item = &str> {
        let lines: Vec<&str> = self.text.lines().collect();
        let tests = lines.windows(2).position(is_test_module);
        let count = tests.unwrap_or(lines.len());
        lines.into_iter().take(count)
    }

    /// Returns the doc comments before the file's module of tests, in order.
    pub(super) fn doc_comments(&self) -> Vec<DocComment> {
        let mut comments: Vec<DocComment> = Vec::new();
        let mut goes_on = false;
        for (index, line) in self.lines().enumerate() {
            let Some(text) = doc_text(line) else {
                goes_on = false;
                continue;
            };
            match comments.last_mut().filter(|_| goes_on) {
                Some(comment) => {
                    comment.text.push(' ');
                    comment.text.push_str(text);
                }
                None => comments.push(DocComment { line: index + 1, text: text.to_owned() }),
            }
            goes_on = true;
        }
        comments
    }

    /// Returns the type definitions before the file's module of tests, in order.
    pub(super) fn types(&self) -> Vec<TypeDefinition> {
        let defined = |(index, line)| {
            Some(TypeDefinition { line: index + 1, name: type_name(line)?.to_owned() })
        };
        self.lines().enumerate().filter_map(defined).collect()
    }
}

fn is_test_module(pair: &[&str]) -> bool {
    let [attribute, module] = pair else { return false };
    attribute.starts_with("#[cfg(test)]") && module.starts_with("mod ") && module.ends_with('{')
}

/// Returns the text of a line of a doc comment, without its marker; `None` for other lines.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    (!text.starts_with('/')).then(|| text.trim())
}

/// Returns the name of the type that a line defines; `None` if it defines none.
fn type_name(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().peekable();
    if let Some(word) = words.peek()
        && (*word == "pub" || word.starts_with("pub("))
    {
        let visibility = words.next()?;
        // `pub(in path)` is two words.
        if visibility == "pub(in" {
            words.next();
        }
    }
    if words.peek() == Some(&"unsafe") {
        words.next();
    }
    if !matches!(words.next()?, "struct" | "enum" | "trait") {
        return None;
    }
    let name = words.next()?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    (end > 0).then(|| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_a_product_or_a_test_by_its_path() {
        for product in ["crates/a/src/lib.rs", "crates/a/src/b/c.rs", "bindings/python/src/lib.rs"]
        {
            assert!(is_product(product), "{product}");
        }
        for test in ["crates/a/tests/it/main.rs", "crates/a/src/b/tests.rs", "xtask/src/main.rs"] {
            assert!(!is_product(test), "{test}");
        }
    }

    #[test]
    fn types_are_found_whatever_stands_before_and_behind_their_names() {
        let text = "pub(crate) struct One<T>(T);\nenum Two {\n    A,\n}\npub(in crate::x) trait Three: Send {}\nlet structure = 1;\nunsafe trait Four {}\n";
        let file = SourceFile { path: "crates/a/src/lib.rs".into(), text: text.into() };
        let names: Vec<_> = file.types().into_iter().map(|t| (t.line, t.name)).collect();
        let expected = [(1, "One"), (2, "Two"), (5, "Three"), (7, "Four")];
        assert_eq!(names, expected.map(|(line, name)| (line, name.to_owned())));
    }

    #[test]
    fn doc_comments_are_joined_and_end_before_the_tests() {
        let text = "//! Module.\n\n/// First line\n/// goes on.\nstruct A;\n//// no doc\n#[cfg(test)]\nmod tests {\n/// Not counted.\n}\n";
        let file = SourceFile { path: "crates/a/src/lib.rs".into(), text: text.into() };
        let comments: Vec<_> = file.doc_comments().into_iter().map(|d| (d.line, d.text)).collect();
        let expected = [(1, "Module."), (3, "First line goes on.")];
        assert_eq!(comments, expected.map(|(line, text)| (line, text.to_owned())));
    }
}
