//! The other policy of a replay with --policy, which is a policy tree or a policy file with classes.
//!
//! With a policy file every arrival gets a new class. The journal has the data for that: the input tokens of a request,
//! the cached part on each worker, and the workers that it may run on. It does not have the family that the client
//! named, only the resulting class. If the file has a class of that name, the request keeps the family of this class.
//! Any other recorded class counts as the name of a family or of an explicit class. A request without a recorded class
//! gets the default family. The journal has no models, so the file's profile for all models applies to every request.

use std::fs;
use std::path::Path;

use fairgate_config::{PolicyClasses, PolicyFile};
use fairgate_core::attribute::{Attribute, Attributes};
use fairgate_core::event::{Event, Submit};
use fairgate_core::policy::Policy;
use fairgate_core::units::{Tokens, Weight};
use fairgate_journal::parse_policy;

use crate::error::ReplayError;

/// Changes of a what-if: another policy, with the class of each request under it, or other weights
/// of some flows.
#[derive(Clone, Debug, Default)]
pub struct OtherPolicy {
    /// Policy that replaces the journal's; `None` to keep it.
    pub(crate) policy: Option<Policy>,
    /// Classes of the policy file, which give each request a new class; `None` if requests keep their recorded class.
    classes: Option<PolicyClasses>,
    /// Weights that apply throughout. Recorded weights of the same flows are left out.
    pub(crate) weights: Vec<FlowWeight>,
}

/// Weight of a flow in a what-if.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowWeight {
    /// Attribute by whose value the flow is named.
    pub by: Attribute,
    /// Name of the flow.
    pub flow: Box<str>,
    /// Weight of the flow, or its quantum in a drr node.
    pub weight: Weight,
}

impl std::str::FromStr for FlowWeight {
    type Err = ReplayError;

    /// Parses `BY:FLOW=WEIGHT`, such as `tenant:batch=50`.
    fn from_str(text: &str) -> Result<Self, ReplayError> {
        let wrong = || {
            let names = Attribute::ALL.map(Attribute::name).join(", ");
            ReplayError::Weight(format!(
                "{text:?} must be BY:FLOW=WEIGHT, such as tenant:batch=50, with BY one of {names} and a weight of 1 or more"
            ))
        };
        let (by, rest) = text.split_once(':').ok_or_else(wrong)?;
        let (flow, weight) = rest.rsplit_once('=').ok_or_else(wrong)?;
        let by = Attribute::from_name(by).ok_or_else(wrong)?;
        let weight = weight.parse().ok().and_then(|weight| Weight::new(weight).ok());
        Ok(Self { by, flow: flow.into(), weight: weight.ok_or_else(wrong)? })
    }
}

impl OtherPolicy {
    /// Keeps the journal's policy, with other weights for some flows.
    pub fn of_weights(weights: Vec<FlowWeight>) -> Self {
        Self { weights, ..Self::default() }
    }

    /// Reads a policy from a file.
    pub fn read(path: &Path) -> Result<Self, ReplayError> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path)
            .map_err(|source| ReplayError::Input { name: name.clone(), source })?;
        Self::parse(&text, path)
    }

    /// Parses a policy node, an object that contains one (a pool, or the first line of a journal),
    /// or a policy file. `name` is the name for error messages.
    pub fn parse(text: &str, name: &Path) -> Result<Self, ReplayError> {
        let shown = || name.display().to_string();
        if !PolicyFile::is_policy_file(text) {
            let policy = parse_policy(text)
                .map_err(|source| ReplayError::Policy { name: shown(), source })?;
            return Ok(Self { policy: Some(policy), ..Self::default() });
        }
        let file = PolicyFile::parse(text, name).map_err(ReplayError::PolicyFile)?;
        let Some(classes) = file.root else {
            let problem = "it has profiles of single models only, and a journal does not say which model a request asked for: \
                           put the profile that you mean at the top of a file";
            return Err(ReplayError::UnusablePolicy { name: shown(), problem: problem.to_owned() });
        };
        let policy = Some(classes.policy());
        Ok(Self { policy, classes: Some(classes), weights: Vec::new() })
    }

    /// Returns true if the weight of this flow is set for the whole replay.
    pub(crate) fn sets_weight(&self, by: Attribute, flow: &str) -> bool {
        self.weights.iter().any(|set| set.by == by && *set.flow == *flow)
    }

    /// Returns true if requests get new classes.
    pub fn classifies(&self) -> bool {
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

/// Returns the request's input tokens minus its cached tokens. Of all workers that the pin or the
/// allow-list permits, the worker with the most cached tokens counts. Taints are ignored.
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
