//! All commands with their arguments, flags, defaults and values, as `--help` shows them, without the sentences.

use super::program;

/// Returns the lines of all commands, hidden ones left out.
pub(super) fn lines() -> Vec<String> {
    let mut lines = Vec::new();
    add_command(&mut Vec::new(), &mut lines);
    lines
}

fn add_command(words: &mut Vec<String>, lines: &mut Vec<String>) {
    let args: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
    let output = program(&args).output().expect("the command runs");
    assert!(output.status.success(), "{args:?}");
    let help = String::from_utf8(output.stdout).expect("text");
    let usage = help.lines().find_map(|line| line.strip_prefix("Usage: ")).unwrap_or_default();
    lines.push(usage.to_owned());
    let found = Help::read(&help);
    lines.extend(found.facts.iter().map(|fact| format!("  {fact}")));
    for command in found.commands.iter().filter(|command| *command != "help") {
        words.push(command.clone());
        add_command(words, lines);
        words.pop();
    }
}

/// The parts of a help text that are not sentences.
#[derive(Default)]
struct Help {
    facts: Vec<String>,
    commands: Vec<String>,
}

impl Help {
    fn read(help: &str) -> Self {
        let mut found = Self::default();
        let (mut section, mut in_values, mut about) = (String::new(), false, String::new());
        // What comes before the usage is all sentences.
        for line in help.lines().skip_while(|line| !line.starts_with("Usage: ")).skip(1) {
            let words = line.trim_start();
            let depth = line.len() - words.len();
            match depth {
                _ if words.is_empty() => {}
                0 => (section, in_values) = (line.trim_end_matches(':').to_owned(), false),
                2 if section == "Commands" => {
                    found.commands.extend(words.split(' ').next().map(str::to_owned));
                }
                // Flags without a short form are indented by 6.
                2 | 6 if words.starts_with(['-', '<', '[']) => {
                    found.end_item(&mut about);
                    in_values = false;
                    let (flag, rest) = words.split_once("  ").unwrap_or((words, ""));
                    found.facts.push(flag.to_owned());
                    about = rest.to_owned();
                }
                _ if words == "Possible values:" => in_values = true,
                _ if in_values && words.starts_with("- ") => {
                    let value = words[2..].split(':').next().unwrap_or_default();
                    found.facts.push(format!("  value {value}"));
                }
                _ => about = format!("{about} {words}"),
            }
        }
        found.end_item(&mut about);
        found
    }

    /// Adds the texts in brackets at the end of a description: default, variable and possible
    /// values. They may be broken over lines.
    fn end_item(&mut self, about: &mut String) {
        for begin in ["[env: ", "[default: ", "[possible values: ", "[aliases: "] {
            let rest = about.find(begin).map(|start| &about[start..]);
            let end = rest.and_then(|rest| Some(&rest[..=rest.find(']')?]));
            self.facts.extend(end.map(|words| format!("  {words}")));
        }
        about.clear();
    }
}

#[test]
fn sentences_of_a_help_text_are_left_out() {
    let help = "Adds a thing.\n\nUsage: fairgate thing [OPTIONS] <NAME>\n\nCommands:\n  list  Lists them\n\n\
                Arguments:\n  <NAME>\n          Its name\n\nOptions:\n  -w, --weight <WEIGHT>\n          - A weight\n          \n          \
                [env: W=] [default:\n          100]\n\n      --kind <KIND>\n          Its kind\n\n          Possible values:\n          \
                - big: A big one\n          - small\n";
    let found = Help::read(help);
    assert_eq!(found.commands, ["list"]);
    let expected = [
        "<NAME>",
        "-w, --weight <WEIGHT>",
        "  [env: W=]",
        "  [default: 100]",
        "--kind <KIND>",
        "  value big",
        "  value small",
    ];
    assert_eq!(found.facts, expected);
}
