//! Counts the top-level modules of a crate that import each other in a circle.
//!
//! A module imports another module if it names `crate::OTHER` outside of comments and tests. Two modules are in a
//! circle if each of them reaches the other over imports.

use std::collections::{BTreeMap, BTreeSet};

use super::Measure;
use super::source::{SourceFile, SourceTree};

/// Beginning of the paths of the core. Its modules are not checked, because its decision is one
/// algorithm over several files.
const EXCEPT: &str = "crates/fairgate-core/";

/// Imports between the top-level modules of one crate.
type Imports<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

pub(super) fn measure(tree: &SourceTree) -> Measure {
    let mut crates: BTreeMap<&str, Vec<&SourceFile>> = BTreeMap::new();
    for file in &tree.product {
        if let Some((name, _)) = file.path.split_once("/src/")
            && !file.path.starts_with(EXCEPT)
        {
            crates.entry(name).or_default().push(file);
        }
    }
    let offenders = crates.into_iter().flat_map(|(name, files)| offenders(name, &files)).collect();
    let about = "top-level modules that import each other in a circle";
    Measure::places("module_circles", about, 0, offenders)
}

fn offenders(name: &str, files: &[&SourceFile]) -> Vec<String> {
    let modules: BTreeSet<&str> = files.iter().filter_map(|file| module_of(&file.path)).collect();
    let mut imports: Imports<'_> = BTreeMap::new();
    for file in files {
        let Some(module) = module_of(&file.path) else { continue };
        let named = named_modules(&file.text);
        let others = named.iter().filter_map(|other| modules.get(&**other)).copied();
        imports.entry(module).or_default().extend(others.filter(|other| *other != module));
    }
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        imports.keys().map(|module| (*module, reachable(module, &imports))).collect();
    let circle = |module: &str| {
        let back = |other: &&&str| reached.get(**other).is_some_and(|there| there.contains(module));
        reached[module].iter().filter(back).map(|other| (*other).to_owned()).collect::<Vec<_>>()
    };
    let in_circles = imports.keys().filter(|module| reached[*module].contains(*module));
    in_circles
        .map(|module| {
            format!("{name}: `{module}` is in a circle with {}", circle(module).join(", "))
        })
        .collect()
}

/// Returns the top-level module of a file; `None` for the root of the crate and for programs of their
/// own.
fn module_of(path: &str) -> Option<&str> {
    let (_, inside) = path.split_once("/src/")?;
    let first = inside.split('/').next()?;
    let module = first.strip_suffix(".rs").unwrap_or(first);
    (!["lib", "main", "bin"].contains(&module)).then_some(module)
}

/// Returns the names that follow `crate::`, including names in braces. Comments and the tests at a file's end are
/// skipped.
fn named_modules(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code: String = lines.collect::<Vec<_>>().join("\n");
    let mut names = Vec::new();
    for line in code.split("crate::").skip(1) {
        match line.strip_prefix('{') {
            Some(list) => {
                let list = list.split(';').next().unwrap_or(list);
                names.extend(
                    list.split(['{', ',']).map(|item| first_word(item.trim_start()).to_owned()),
                );
            }
            None => names.push(first_word(line).to_owned()),
        }
    }
    names
}

fn first_word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// Returns the modules that a module reaches over one or more imports.
fn reachable<'a>(module: &'a str, imports: &Imports<'a>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![module];
    while let Some(module) = open.pop() {
        for other in imports.get(module).into_iter().flatten() {
            if reached.insert(*other) {
                open.push(other);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| SourceFile {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        let tree = SourceTree { product: files.iter().map(file).collect(), ..Default::default() };
        measure(&tree).offenders
    }

    #[test]
    fn modules_that_reach_each_other_are_found() {
        let circle = [
            ("crates/x/src/a.rs", "use crate::b::B;"),
            ("crates/x/src/b/inner.rs", "use crate::{c, d::D};"),
            ("crates/x/src/c.rs", "fn f() -> crate::a::A {}"),
            ("crates/x/src/d.rs", ""),
        ];
        let offenders = found(&circle);
        assert_eq!(offenders.len(), 3, "{offenders:?}");
        assert!(offenders[0].contains("`a`") && offenders[0].ends_with("a, b, c"), "{offenders:?}");
        assert_eq!(found(&circle[..2]).len(), 0, "nothing leads back");
    }

    #[test]
    fn tests_roots_and_the_core_do_not_count() {
        let back = "use crate::a::A;";
        for (path, text) in [
            ("crates/x/src/b.rs", "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}"),
            ("crates/x/src/b.rs", "// See crate::a.\n/// Like [`A`](crate::a::A).\nstruct B;"),
            ("crates/x/src/lib.rs", back),
            ("crates/y/src/b.rs", back),
        ] {
            let files = [("crates/x/src/a.rs", "use crate::b::B;"), (path, text)];
            assert!(found(&files).is_empty(), "{path}");
        }
        let core = ["a", "b"].map(|name| format!("crates/fairgate-core/src/{name}.rs"));
        assert!(found(&[(&core[0], "use crate::b;"), (&core[1], "use crate::a;")]).is_empty());
    }
}
