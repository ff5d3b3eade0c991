//! Measures of constants, fragments of SQL and definitions that must be written out in only one
//! file, because copies would drift apart.

use super::Measure;
use super::source::{SourceFile, SourceTree};

/// A rule that may be written out in only one file.
struct OneHome {
    /// Name of the measure in the ratchet file.
    name: &'static str,
    /// Description of the measure, for the table.
    about: &'static str,
    /// Texts in lower case. A line that contains one of them writes out the rule.
    betrayed_by: &'static [&'static str],
    /// True if copies in tests count too.
    also_in_tests: bool,
}

const ONE_HOMES: [OneHome; 11] = [
    OneHome {
        name: "calendars",
        about: "files beyond one that compute a civil calendar",
        betrayed_by: &["719_468", "146_097"],
        also_in_tests: true,
    },
    OneHome {
        name: "splitmix64",
        about: "files beyond one with a random generator of their own",
        betrayed_by: &["0xbf58_476d_1ce4_e5b9", "0xbf58476d1ce4e5b9"],
        also_in_tests: true,
    },
    OneHome {
        name: "held_states",
        about: "files beyond one that spell the states of a held task",
        betrayed_by: &[
            "('assigned', 'in_progress')",
            "\"assigned\" | \"in_progress\"",
            "assigned | self::inprogress",
            "taskstate::assigned | taskstate::inprogress",
        ],
        also_in_tests: false,
    },
    OneHome {
        name: "claim_ends",
        about: "files beyond one that end a claim in SQL",
        betrayed_by: &["used_before = used_before + used"],
        also_in_tests: false,
    },
    OneHome {
        name: "state_writes",
        about: "files beyond one that write the state of a task that exists",
        betrayed_by: &["fleet_tasks set state ="],
        also_in_tests: false,
    },
    OneHome {
        name: "set_aside",
        about: "files beyond one with the rule for tokens that are set aside",
        betrayed_by: &["t.reserved - t.used", "reserved.saturating_sub(used)"],
        also_in_tests: false,
    },
    OneHome {
        name: "usage_columns",
        about: "files beyond one that list the columns by which usage is grouped",
        betrayed_by: &["    outcome,", "outcome = \"outcome\","],
        also_in_tests: false,
    },
    OneHome {
        name: "percent_formatters",
        about: "files beyond one with a formatter of percentages",
        betrayed_by: &[
            "fn percent(ppm",
            "fn percent(cap",
            "fn percent(flow",
            "/ 10_000, ppm",
            "thousandths % 10)",
            "milli % 10)",
            "part % 10)",
            "tenths % 10)",
        ],
        also_in_tests: false,
    },
    OneHome {
        name: "refusal_codes",
        about: "files beyond one that write out or compare codes of refusals",
        betrayed_by: &[
            "\"provider_limited\"",
            "\"lease_unclear\"",
            "\"upstream_idle_timeout\"",
            "\"hosted_not_allowed\"",
            "problem.code",
        ],
        also_in_tests: false,
    },
    OneHome {
        name: "policy_flows",
        about: "files beyond one that find a request's flow in a policy",
        betrayed_by: &["fn inside_of", "fn path_of", "fn cap_of"],
        also_in_tests: false,
    },
    OneHome {
        name: "waiting_sentences",
        about: "files beyond one with sentences why a request waits",
        betrayed_by: &[
            "} is at its cap:",
            "} would come before its own",
            "} is held by an operator",
            "} is blocked:",
        ],
        also_in_tests: false,
    },
];

pub(super) fn measures(tree: &SourceTree) -> Vec<Measure> {
    let mut measures: Vec<Measure> = ONE_HOMES.iter().map(|rule| rule.measure(tree)).collect();
    measures.push(fleet_in_store(tree));
    measures
}

/// Counts the files of the store that name the fleet. The rules of the fleet belong in other
/// crates.
fn fleet_in_store(tree: &SourceTree) -> Measure {
    let of_store = |file: &&SourceFile| file.path.starts_with("crates/fairgate-store/src/");
    let naming = |file: &SourceFile| {
        let names_it = |line: &&str| line.to_lowercase().contains("fleet");
        let (index, line) = file.lines().enumerate().find(|(_, line)| names_it(line))?;
        Some(format!("{}:{}: {}", file.path, index + 1, line.trim()))
    };
    let places = tree.product.iter().filter(of_store).filter_map(naming).collect();
    Measure::places("fleet_in_store", "files of the store that name the fleet", 0, places)
}

impl OneHome {
    fn measure(&self, tree: &SourceTree) -> Measure {
        let product = tree.product.iter();
        let tests = tree.tests.iter().filter(|file| self.also_in_tests && !is_tidy(file));
        let mut homes: Vec<String> =
            product.chain(tests).filter_map(|file| self.first_copy(file)).collect();
        if homes.len() == 1 {
            homes.clear();
        }
        let mut measure = Measure::places(self.name, self.about, 0, homes);
        // The first file is the home, so it does not count.
        measure.tenths = measure.tenths.saturating_sub(10);
        measure
    }

    /// Returns the first line of a file that writes out the rule, with its path and number; `None`
    /// if no line does.
    fn first_copy(&self, file: &SourceFile) -> Option<String> {
        let is_copy = |line: &str| {
            let line = line.to_lowercase();
            self.betrayed_by.iter().any(|text| line.contains(text))
        };
        let lines: Vec<&str> = match self.also_in_tests {
            true => file.text.lines().collect(),
            false => file.lines().collect(),
        };
        let (index, line) = lines.into_iter().enumerate().find(|(_, line)| is_copy(line))?;
        Some(format!("{}:{}: {}", file.path, index + 1, line.trim()))
    }
}

/// Returns whether a file belongs to tidy, whose own source contains the texts that it searches
/// for.
fn is_tidy(file: &SourceFile) -> bool {
    file.path.starts_with("xtask/src/tidy")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_fails_at_its_second_home() {
        for rule in &ONE_HOMES {
            for text in rule.betrayed_by {
                let files = [("crates/a/src/a.rs", *text), ("crates/b/src/b.rs", *text)];
                let one = rule.measure(&SourceTree::of(&files[..1]));
                assert_eq!((one.tenths, one.offenders.len()), (0, 0), "{}", rule.name);
                let two = rule.measure(&SourceTree::of(&files));
                assert_eq!((two.tenths, two.offenders.len()), (10, 2), "{}", rule.name);
            }
        }
    }

    #[test]
    fn the_store_must_not_name_the_fleet() {
        let files = [
            ("crates/fairgate-store/src/a.rs", "SELECT 1 FROM fleet_tasks"),
            ("crates/fairgate-store/src/b.rs", "SELECT 1 FROM tenants"),
            ("crates/fairgate-fleet/src/c.rs", "SELECT 1 FROM fleet_tasks"),
        ];
        let measure = fleet_in_store(&SourceTree::of(&files));
        assert_eq!((measure.tenths, measure.offenders.len()), (10, 1), "{:?}", measure.offenders);
    }

    #[test]
    fn copies_in_tests_count_where_the_rule_says_so() {
        for rule in &ONE_HOMES {
            let text = rule.betrayed_by[0];
            let files = [("crates/a/src/a.rs", text), ("crates/a/tests/it.rs", text)];
            let expected = if rule.also_in_tests { 10 } else { 0 };
            assert_eq!(rule.measure(&SourceTree::of(&files)).tenths, expected, "{}", rule.name);
            let module = format!("#[cfg(test)]\nmod tests {{\n{text}\n}}\n");
            let files = [("crates/a/src/a.rs", text), ("crates/b/src/b.rs", module.as_str())];
            assert_eq!(rule.measure(&SourceTree::of(&files)).tenths, expected, "{}", rule.name);
        }
    }
}
