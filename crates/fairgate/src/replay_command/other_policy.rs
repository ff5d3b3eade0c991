//! The other policy of a replay with --policy, which is a policy tree or a policy file with classes.
//!
//! With a policy file every arrival gets a new class. The journal has the data for that: the input tokens of a request,
//! the cached part on each worker, and the workers that it may run on. It does not have the family that the client
//! named, only the resulting class. If the file has a class of that name, the request keeps the family of this class.
//! Any other recorded class counts as the name of a family or of an explicit class. A request without a recorded class
//! gets the default family. The journal has no models, so the file's profile for all models applies to every request.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use fairgate_config::{PolicyClasses, PolicyFile};
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::event::{Event, Submit};
use fairgate_core::policy::Policy;
use fairgate_core::units::Tokens;
use fairgate_journal::parse_policy;

/// A policy, and the class of each request under it.
#[derive(Debug)]
pub(crate) struct OtherPolicy {
    pub(crate) policy: Policy,
    /// Classes of the policy file, which give each request a new class; `None` if requests keep their recorded class.
    classes: Option<PolicyClasses>,
}

impl OtherPolicy {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let name = || path.display().to_string();
        let text = fs::read_to_string(path).with_context(name)?;
        if !PolicyFile::is_policy_file(&text) {
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

    /// Returns true if requests get new classes.
    pub(crate) fn classifies(&self) -> bool {
        self.classes.is_some()
    }

    /// Returns the event with the request's class under this policy.
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

fn class<'a>(classes: &'a PolicyClasses, submit: &Submit) -> &'a str {
    let recorded = submit.attributes.get(Attribute::Class);
    let of_file = classes.all().iter().find(|class| Some(class.name.as_str()) == recorded);
    let family = of_file.and_then(|class| class.cell.as_ref()).map(|cell| cell.family.as_str());
    classes.resolve(family.or(recorded), uncached_tokens(submit)).class.as_str()
}

/// Returns the request's input tokens minus its cached tokens. The cached tokens are those of the worker that has the
/// most, among the workers that the pin or the allow-list permits. Ignores taints.
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
