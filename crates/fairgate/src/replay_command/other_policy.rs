//! The other policy of a what-if: a tree, or the classes of a policy file.
//!
//! With a policy file every arrival gets its class anew. The journal has what that takes: the input tokens of a request, how
//! many of them each worker had cached, and the workers that it might run on. It does not have the family that the client
//! named, but the class that came of it. So a class that the file has keeps its family, a family or an explicit class of
//! that name is taken for named, and all other requests are of the default family. Models are not in the journal: the
//! file's profile for all models stands for every request.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use fairgate_config::{Classes, PolicyFile};
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::event::{Event, Submit};
use fairgate_core::policy::Policy;
use fairgate_core::units::Tokens;
use fairgate_journal::parse_policy;

/// A policy, and which class each request gets under it.
#[derive(Debug)]
pub(crate) struct OtherPolicy {
    pub(crate) policy: Policy,
    /// None where requests keep the class that they had.
    classes: Option<Classes>,
}

impl OtherPolicy {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let name = || path.display().to_string();
        let text = fs::read_to_string(path).with_context(name)?;
        if !PolicyFile::is_meant(&text) {
            return Ok(Self { policy: parse_policy(&text).with_context(name)?, classes: None });
        }
        let file = PolicyFile::parse(&text, path)?;
        let Some(classes) = file.root else {
            bail!(
                "{}: it has profiles of single models only, and a journal does not say which model a request asked for: \
                 put the profile that you mean at the top of a file",
                name()
            );
        };
        Ok(Self { policy: classes.policy(), classes: Some(classes) })
    }

    /// Whether requests get their classes anew.
    pub(crate) fn classifies(&self) -> bool {
        self.classes.is_some()
    }

    /// The event, with the class that its request gets under this policy.
    pub(crate) fn classified(&self, event: Event) -> Event {
        match (&self.classes, event) {
            (Some(classes), Event::Submit(mut submit)) => {
                let class = class(classes, &submit);
                submit.attributes = with_class(&submit.attributes, class);
                Event::Submit(submit)
            }
            (_, event) => event,
        }
    }
}

fn class<'a>(classes: &'a Classes, submit: &Submit) -> &'a str {
    let recorded = submit.attributes.get(Attribute::Class);
    let of_file = classes.all().iter().find(|class| Some(class.name.as_str()) == recorded);
    let family = of_file.and_then(|class| class.cell.as_ref()).map(|cell| cell.family.as_str());
    classes.resolve(family.or(recorded), uncached_tokens(submit)).class.as_str()
}

/// Its input less the most that is cached on a worker which it names or allows. Taints are not looked at.
fn uncached_tokens(submit: &Submit) -> u64 {
    let may_run_on = |worker: &str| match (&submit.pin, &submit.allow) {
        (Some(pin), _) => *pin.worker == *worker,
        (None, Some(allowed)) => allowed.iter().any(|name| **name == *worker),
        (None, None) => true,
    };
    let cached = submit.cached.iter().filter(|(worker, _)| may_run_on(worker));
    let cached = cached.map(|(_, tokens)| *tokens).max().unwrap_or_default();
    let input = submit.input.or(submit.cost).unwrap_or(Tokens(1));
    input.0.saturating_sub(cached.0)
}

fn with_class(attributes: &Attributes, class: &str) -> Attributes {
    let mut texts = Attribute::ALL.map(|by| attributes.get(by));
    texts[Attribute::Class as usize] = Some(class);
    Attributes::of(texts)
}
