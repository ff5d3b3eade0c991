//! Test that the gateway section of README.md works as it is printed.

use std::fs;
use std::path::Path;
use std::process::Command;

use fairgate_sim::SimOptions;

use super::http::{CHAT, ask, chat};
use super::running::{Folder, Gateway, Model};
use crate::run::{command, finished};

/// Returns the commands of the section, for the first shell and for the second.
fn shells() -> (Vec<String>, Vec<String>) {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(readme).expect("there is one");
    let section = readme.split("\n## ").find(|part| part.starts_with("In front of your models"));
    let mut blocks = section.expect("the section").split("```sh\n").skip(1).map(|rest| {
        let block = rest.split("```").next().unwrap_or_default();
        block.lines().map(str::to_owned).collect::<Vec<String>>()
    });
    let shells = (blocks.next().expect("one shell"), blocks.next().expect("and another"));
    assert!(blocks.next().is_none(), "no third");
    shells
}

#[test]
fn the_commands_in_front_of_your_models_run_as_they_stand() {
    // The example as it is, but for addresses that a test may have.
    let folder = Folder::new();
    let models = ["meta-llama/Llama-3.1-8B-Instruct", "gpt-4o"].map(str::to_owned);
    let model = Model::start(SimOptions { models: models.into(), ..SimOptions::instant() });
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fairgate.yaml");
    let mut text = fs::read_to_string(example).expect("there is one");
    let addresses = [
        ("listen: 127.0.0.1:8080", "listen: 127.0.0.1:0"),
        ("listen: 127.0.0.1:8081", "listen: 127.0.0.1:0"),
        ("http://10.0.0.11:8000", &model.url),
        ("http://10.0.0.12:8000", &model.url),
        ("https://api.openai.com/v1", &model.url),
    ];
    for (theirs, ours) in addresses {
        assert!(text.contains(theirs), "the example has {theirs}");
        text = text.replace(theirs, ours);
    }
    fs::create_dir(folder.join("examples")).expect("a folder");
    fs::write(folder.join("examples/fairgate.yaml"), text).expect("a file");

    let (first, second) = shells();
    let [key, serve] = &first[..] else { panic!("a key and a gateway: {first:?}") };
    let key = key.split_once('#').map_or(key.as_str(), |(key, _)| key);
    let key = key.trim().strip_prefix("export OPENAI_API_KEY=").expect("the example's variable");
    let serve = serve.split('#').next().unwrap_or_default();
    let args: Vec<&str> = serve.split_whitespace().skip(1).collect();
    let mut serve = command(&args);
    serve.env("OPENAI_API_KEY", key).current_dir(folder.path());
    let gateway = Gateway::start(&folder, serve);

    // The two lines that it prints are those that stand there, but for the addresses.
    let printed = |name: &str| {
        let mark = format!("  export {name}=");
        let line = gateway.greeting.lines().find_map(|line| line.strip_prefix(&mark));
        line.unwrap_or_else(|| panic!("it prints {name}: {}", gateway.greeting)).to_owned()
    };
    let url = printed("FAIRGATE_URL");
    let token_file = "examples/fairgate-data/admin-token";
    assert!(printed("FAIRGATE_ADMIN_TOKEN_FILE").ends_with(token_file));
    let mut script = "set -e\n".to_owned();
    for line in &second {
        let line = match line.as_str() {
            "export FAIRGATE_URL=http://127.0.0.1:8081" => format!("export FAIRGATE_URL={url}"),
            // It takes a minute, and has tests of its own.
            line if line.starts_with("fairgate prove") => "fairgate prove --list".to_owned(),
            line => line.to_owned(),
        };
        script.push_str(&format!("{line}\n"));
    }
    assert!(script.contains(&url) && script.contains(token_file), "{script}");
    let binary = Path::new(env!("CARGO_BIN_EXE_fairgate"));
    let others = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{others}", binary.parent().expect("a folder").display());
    let run = Command::new("sh")
        .args(["-c", &script])
        .env("PATH", path)
        .current_dir(folder.path())
        .output();
    let told = finished(run.expect("a shell runs")).ok();
    assert!(
        told.contains("chat    prod      300  enabled  -         tokens_per_day=5000000"),
        "{told}"
    );
    assert!(told.contains("pool llama: 0 of 24 in flight"), "{told}");
    let secret = told.lines().find(|line| line.starts_with("fg-")).expect("a secret is shown");
    for model in ["llama-3.1-8b", "gpt-4o"] {
        let answer = ask(&gateway.url, "POST", CHAT, secret, &chat(model, "Hello", false));
        assert_eq!(answer.expect("an answer").status, 200, "{model}");
    }
}
