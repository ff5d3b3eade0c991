//! The choices of a request, from headers or from hints in its body, checked against the rights of its key: the policy
//! class, the priority, the weight, the workers (`worker_filter.rs`), and the deadline. A header wins over the body.
//!
//! A client can choose only what its key has a right to. The choices are fields of the submit, so they are in the
//! journal.

use std::time::Duration;

use bytes::Bytes;
use fairgate_config::{parse_deadline, parse_thousandths};
use fairgate_core::units::TaskWeight;
use fairgate_dialect::RequestFields;
use fairgate_store::{KeyRights, PRIORITY_MAX, PRIORITY_MIN};
use http::{HeaderMap, HeaderName};

use super::request_checks::read_name;
use super::worker_filter::WorkerFilter;
use crate::pools::PoolSetup;
use crate::refusal::{self, Refusal};

const CLASS: HeaderName = HeaderName::from_static("x-fairgate-class");
const PRIORITY: HeaderName = HeaderName::from_static("x-fairgate-priority");
const WEIGHT: HeaderName = HeaderName::from_static("x-fairgate-weight");
const DEADLINE: HeaderName = HeaderName::from_static("x-fairgate-deadline");
/// Header in which clients of Dynamo name a policy class.
const DYNAMO_CLASS: HeaderName = HeaderName::from_static("x-dynamo-meta-policy-class");
/// Header with Dynamo's strict priority. It is read before [`DYNAMO_PRIORITY`], because it orders
/// a queue as Fairgate's own priority does.
const DYNAMO_STRICT_PRIORITY: HeaderName =
    HeaderName::from_static("x-dynamo-request-strict-priority");
/// Header with Dynamo's priority.
const DYNAMO_PRIORITY: HeaderName = HeaderName::from_static("x-dynamo-request-priority");

/// The choices of a request, all of which its key has the right to make.
#[derive(Debug, Default)]
pub(super) struct ClientChoices {
    /// Class or family of the request; `None` means the policy's default.
    pub(super) class: Option<Box<str>>,
    /// Priority within the queue, from [`PRIORITY_MIN`] to [`PRIORITY_MAX`]; a higher number goes first.
    pub(super) priority: i64,
    /// Weight of the request in the queue depth of a `load` node: the stated one, else that of its model. `None` if the
    /// policy has no such node, so that weights have no effect.
    pub(super) weight: Option<TaskWeight>,
    pub(super) worker: WorkerFilter,
    /// Longest wait for a slot that the request states, from its arrival. The key's right to this deadline is checked
    /// once the queue is known.
    pub(super) deadline: Option<Duration>,
}

/// The choices that a lease states.
pub(super) struct LeaseChoices {
    pub(super) class: Option<Box<str>>,
    pub(super) priority: i64,
    pub(super) weight: Option<TaskWeight>,
    pub(super) deadline: Option<Duration>,
}

/// Reads the choices of a request, and refuses those that its key may not make.
pub(super) fn read(
    rights: &KeyRights,
    setup: &PoolSetup,
    headers: &HeaderMap,
    ask: &RequestFields,
    body: &Bytes,
) -> Result<ClientChoices, Refusal> {
    let hints = ask.hints(body)?;
    let named_class = first_named(headers, [&CLASS, &DYNAMO_CLASS])?;
    let class = class(rights, OfferedClasses::by(setup), named_class)?;
    let priority = stated_priority(headers)?.or(hints.priority);
    Ok(ClientChoices {
        class,
        priority: checked_priority(rights, priority.unwrap_or(0), PRIORITY.as_str())?,
        weight: match stated_weight(headers)? {
            Some(_) if !setup.has_load_node => return Err(refusal::weight_without_effect()),
            stated => weight(rights, setup, &ask.model, stated)?,
        },
        worker: WorkerFilter::read(rights, setup, headers, hints.required_taints)?,
        deadline: stated_deadline(headers)?,
    })
}

/// Checks the class, priority, weight and deadline that a lease states against the rights of its key. In a pool without
/// a `load` node, weights have no effect and need no right; the lease says so.
pub(super) fn read_for_lease(
    rights: &KeyRights,
    setup: &PoolSetup,
    model: &str,
    stated: LeaseChoices,
) -> Result<ClientChoices, Refusal> {
    let LeaseChoices { class: class_named, priority, weight: stated_weight, deadline } = stated;
    let class = class(rights, OfferedClasses::by(setup), class_named)?;
    let priority = checked_priority(rights, priority, "priority")?;
    let weight = weight(rights, setup, model, stated_weight)?;
    let worker = WorkerFilter::of_key(rights, setup)?;
    Ok(ClientChoices { class, priority, weight, worker, deadline })
}

/// The classes and families of a pool's policy.
#[derive(Clone, Copy)]
struct OfferedClasses<'a> {
    names: &'a [Box<str>],
    /// True if the policy lists all its classes, so that any other name counts as the policy's default. If false, each
    /// name is a class of its own.
    are_all: bool,
    /// True if the classes come from a policy file.
    of_file: bool,
    /// Classes that a key without a list of classes may name, if the classes are ordered strictly.
    /// Otherwise `None`; such a key may then name any class of the policy.
    strict_defaults: Option<&'a [Box<str>]>,
    /// Names of the class or family that a request gets if it names none.
    defaults: &'a [Box<str>],
}

impl<'a> OfferedClasses<'a> {
    fn by(setup: &'a PoolSetup) -> Self {
        Self {
            names: &setup.class_names,
            are_all: setup.lists_classes,
            of_file: setup.config.classes.is_some(),
            strict_defaults: setup.strict_defaults.as_deref(),
            defaults: &setup.default_classes,
        }
    }
}

/// Returns the class or family of a request. This is the one that the request names; a name that
/// the key may not use is refused. If the request names none, it is the first of the key's list
/// that the policy has. `None` means the policy's default. With a policy file, a name that the file
/// does not have also counts as the default, as in Dynamo, if the key has no list or an empty one.
///
/// A key with an empty list, as new keys have, may name the policy's default class and no other.
///
/// If classes have a strict order (`bands`), a key without a list may name only the default. Otherwise anybody could
/// take the top class, and everyone else would wait as long as that class has work.
///
/// A key's list may contain classes of other pools. In this pool they would count as the default class, which the key
/// may not be meant to have. So they are ignored, and a key that has none of this policy's classes is refused.
fn class(
    rights: &KeyRights,
    offered: OfferedClasses<'_>,
    named: Option<Box<str>>,
) -> Result<Option<Box<str>>, Refusal> {
    let of_policy = offered.names.iter().map(|class| &**class);
    let Some(list) = rights.classes.as_deref() else {
        let Some(name) = named else { return Ok(None) };
        let names: Vec<&str> = of_policy.collect();
        let is_known = names.contains(&&*name);
        return match offered.strict_defaults {
            _ if !is_known && offered.of_file => Ok(None),
            Some(defaults) if !defaults.contains(&name) => {
                Err(refusal::strict_class(&name, defaults))
            }
            _ if is_known => Ok(Some(name)),
            _ => Err(refusal::forbidden_class(&name, &names)),
        };
    };
    if list.is_empty() {
        let Some(name) = named else { return Ok(None) };
        return match offered.names.contains(&name) {
            _ if offered.defaults.contains(&name) => Ok(Some(name)),
            false if offered.of_file => Ok(None),
            _ => Err(refusal::default_class_only(&name, offered.defaults)),
        };
    }
    let is_here = |name: &&str| !offered.are_all || of_policy.clone().any(|class| class == *name);
    let allowed: Vec<&str> = list.iter().map(String::as_str).filter(is_here).collect();
    match named {
        _ if allowed.is_empty() => Err(refusal::classes_of_other_pools(list)),
        None => Ok(allowed.first().map(|first| Box::from(*first))),
        Some(name) if allowed.contains(&&*name) => Ok(Some(name)),
        Some(name) => Err(refusal::forbidden_class(&name, &allowed)),
    }
}

fn first_named(headers: &HeaderMap, names: [&HeaderName; 2]) -> Result<Option<Box<str>>, Refusal> {
    Ok(match read_name(headers, names[0])? {
        Some(name) => Some(name),
        None => read_name(headers, names[1])?,
    })
}

/// Returns the priority from the first of the priority headers that is present.
fn stated_priority(headers: &HeaderMap) -> Result<Option<i64>, Refusal> {
    for header in [&PRIORITY, &DYNAMO_STRICT_PRIORITY, &DYNAMO_PRIORITY] {
        let Some(value) = headers.get(header) else { continue };
        let number = value.to_str().ok().and_then(|text| text.parse().ok());
        return number.map(Some).ok_or_else(|| refusal::bad_priority(header.as_str()));
    }
    Ok(None)
}

/// Returns the deadline from its header, if there is one. Refuses a repeated header as ambiguous.
fn stated_deadline(headers: &HeaderMap) -> Result<Option<Duration>, Refusal> {
    let mut values = headers.get_all(&DEADLINE).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let deadline = value.to_str().ok().and_then(parse_deadline);
    match deadline.filter(|_| values.next().is_none()) {
        Some(deadline) => Ok(Some(deadline)),
        None => Err(refusal::bad_deadline(DEADLINE.as_str())),
    }
}

/// Returns the weight from its header, if there is one. Refuses a repeated header as ambiguous.
fn stated_weight(headers: &HeaderMap) -> Result<Option<TaskWeight>, Refusal> {
    let mut values = headers.get_all(&WEIGHT).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let thousandths = value.to_str().ok().and_then(parse_thousandths);
    let weight = thousandths.and_then(|weight| TaskWeight::from_thousandths(weight).ok());
    match weight.filter(|_| values.next().is_none()) {
        Some(weight) => Ok(Some(weight)),
        None => Err(refusal::bad_weight(WEIGHT.as_str())),
    }
}

/// Returns the weight of a request: the stated one, else that of its model. Refuses a stated weight above both the weight
/// of its model and the key's `weight_max`. Returns `None` if weights have no effect.
fn weight(
    rights: &KeyRights,
    setup: &PoolSetup,
    model: &str,
    stated: Option<TaskWeight>,
) -> Result<Option<TaskWeight>, Refusal> {
    if !setup.has_load_node {
        return Ok(None);
    }
    let of_model = setup.model_weight(model);
    match stated {
        None => Ok(Some(of_model)),
        Some(stated) if is_weight_allowed(rights, of_model, stated) => Ok(Some(stated)),
        Some(stated) => Err(refusal::forbidden_weight(stated, of_model, rights.weight_max_milli)),
    }
}

fn is_weight_allowed(rights: &KeyRights, of_model: TaskWeight, stated: TaskWeight) -> bool {
    stated <= of_model
        || rights.weight_max_milli.is_some_and(|most| u64::from(stated.thousandths()) <= most)
}

/// Checks a priority against the allowed range and the key's `priority_max`. `stated_in` names the header or field in
/// the refusal's message.
fn checked_priority(rights: &KeyRights, priority: i64, stated_in: &str) -> Result<i64, Refusal> {
    match priority {
        _ if !(PRIORITY_MIN..=PRIORITY_MAX).contains(&priority) => {
            Err(refusal::bad_priority(stated_in))
        }
        _ if priority > rights.priority_max => {
            Err(refusal::forbidden_priority(priority, rights.priority_max))
        }
        _ => Ok(priority),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T>(result: Result<T, Refusal>) -> Result<T, &'static str> {
        result.map_err(|refusal| refusal.code.as_str())
    }

    #[test]
    fn a_class_is_one_of_the_keys_or_of_the_policys() {
        let policy: Vec<Box<str>> = vec!["chat".into(), "batch".into()];
        let offered = |are_all, of_file| OfferedClasses {
            names: &policy,
            are_all,
            of_file,
            strict_defaults: None,
            defaults: &policy[1..],
        };
        let listed = |names: &[&str]| KeyRights {
            classes: Some(names.iter().map(|&name| name.into()).collect()),
            ..KeyRights::default()
        };
        let ask = |rights: &KeyRights, name: Option<&str>| {
            code(class(rights, offered(true, false), name.map(Into::into)))
                .map(|class| class.map(String::from).unwrap_or_default())
        };
        let forbidden = Err("class_not_allowed");
        let all = KeyRights { classes: None, ..KeyRights::default() };
        assert_eq!(ask(&all, None), Ok(String::new()));
        assert_eq!(ask(&all, Some("batch")), Ok("batch".into()));
        assert_eq!(ask(&all, Some("premium")), forbidden);
        assert_eq!(code(class(&all, offered(true, true), Some("premium".into()))), Ok(None));
        let batch = listed(&["elsewhere", "batch"]);
        assert_eq!(ask(&batch, None), Ok("batch".into()));
        assert_eq!(ask(&batch, Some("elsewhere")), forbidden);
        let foreign = listed(&["elsewhere"]);
        assert_eq!(ask(&foreign, None), forbidden);
        assert_eq!(ask(&foreign, Some("elsewhere")), forbidden);
        // Where the policy makes a class of every name, the key's list says which.
        let open =
            |name: Option<&str>| code(class(&foreign, offered(false, false), name.map(Into::into)));
        assert_eq!(open(None), Ok(Some("elsewhere".into())));
        assert_eq!(open(Some("elsewhere")), Ok(Some("elsewhere".into())));
        assert_eq!(open(Some("chat")), Err("class_not_allowed"));
        assert_eq!(ask(&batch, Some("chat")), forbidden);
    }

    #[test]
    fn a_new_key_gets_the_default_class_and_may_name_no_other() {
        let (names, defaults): (Vec<Box<str>>, Vec<Box<str>>) =
            (vec!["batch".into(), "chat".into()], vec!["batch".into()]);
        let offered = |are_all, of_file| OfferedClasses {
            names: &names,
            are_all,
            of_file,
            strict_defaults: None,
            defaults: &defaults,
        };
        let new = KeyRights::default();
        let ask = |offered, name: Option<&str>| code(class(&new, offered, name.map(Into::into)));
        assert_eq!(ask(offered(true, false), None), Ok(None));
        assert_eq!(ask(offered(true, false), Some("batch")), Ok(Some("batch".into())));
        for name in ["chat", "Batch", "batch ", "premium", "-"] {
            assert_eq!(ask(offered(true, false), Some(name)), Err("class_not_allowed"), "{name}");
        }
        // In a policy file an unknown name stands for the default, as in Dynamo; a known one is refused.
        assert_eq!(ask(offered(true, true), Some("premium")), Ok(None));
        assert_eq!(ask(offered(true, true), Some("chat")), Err("class_not_allowed"));
        // Where each name is a class of its own, no name is the default.
        let open = OfferedClasses { defaults: &[], ..offered(false, false) };
        assert_eq!(ask(open, Some("mine")), Err("class_not_allowed"));
        let refused = class(&new, offered(true, false), Some("chat".into())).unwrap_err();
        assert!(refused.problem.message.contains("It may name: \"batch\""), "{refused:?}");
    }

    #[test]
    fn in_a_strict_order_a_key_without_a_list_gets_the_default() {
        let (names, defaults): (Vec<Box<str>>, Vec<Box<str>>) =
            (vec!["batch".into(), "chat".into()], vec!["batch".into()]);
        let strict = |of_file| OfferedClasses {
            names: &names,
            are_all: true,
            of_file,
            strict_defaults: Some(&defaults),
            defaults: &defaults,
        };
        let all = KeyRights { classes: None, ..KeyRights::default() };
        let ask = |name: Option<&str>| class(&all, strict(false), name.map(Into::into));
        assert_eq!(ask(None).unwrap(), None);
        assert_eq!(ask(Some("batch")).unwrap().as_deref(), Some("batch"));
        let refused = ask(Some("chat")).unwrap_err();
        assert_eq!(
            (refused.problem.status, refused.code.as_str()),
            (http::StatusCode::FORBIDDEN, "class_not_allowed")
        );
        assert!(refused.problem.message.contains("strict order"), "{}", refused.problem.message);
        assert_eq!(code(ask(Some("premium"))), Err("class_not_allowed"));
        // In a policy file an unknown name stands for the default.
        assert_eq!(code(class(&all, strict(true), Some("premium".into()))), Ok(None));
        assert_eq!(code(class(&all, strict(true), Some("chat".into()))), Err("class_not_allowed"));
        let listed = KeyRights { classes: Some(vec!["chat".into()]), ..KeyRights::default() };
        assert_eq!(code(class(&listed, strict(false), None)), Ok(Some("chat".into())));
        assert_eq!(
            code(class(&listed, strict(false), Some("batch".into()))),
            Err("class_not_allowed")
        );
    }

    #[test]
    fn a_priority_may_always_be_lowered() {
        let rights = KeyRights { priority_max: 3, ..KeyRights::default() };
        for allowed in [3, 0, -1, PRIORITY_MIN] {
            assert_eq!(code(checked_priority(&rights, allowed, "priority")), Ok(allowed));
        }
        assert_eq!(code(checked_priority(&rights, 4, "priority")), Err("priority_not_allowed"));
        for beyond in [PRIORITY_MAX + 1, PRIORITY_MIN - 1, i64::MAX] {
            assert_eq!(
                code(checked_priority(&rights, beyond, "priority")),
                Err("invalid_priority")
            );
        }
    }

    #[test]
    fn a_weight_is_a_decimal_and_at_most_the_models_or_the_keys() {
        let mut headers = HeaderMap::new();
        assert_eq!(code(stated_weight(&headers)), Ok(None));
        let of = |thousandths| TaskWeight::from_thousandths(thousandths).unwrap();
        for (text, thousandths) in
            [("1", 1000), ("2.5", 2500), ("0.001", 1), ("1000000", 1_000_000_000)]
        {
            headers.insert(&WEIGHT, text.parse().unwrap());
            assert_eq!(code(stated_weight(&headers)), Ok(Some(of(thousandths))), "{text}");
        }
        for text in ["", "0", "0.000", "-1", "1.2345", "1000000.001", "1e3", "heavy", "nan", "1."] {
            headers.insert(&WEIGHT, text.parse().unwrap());
            assert_eq!(code(stated_weight(&headers)), Err("invalid_weight"), "{text}");
        }
        headers.insert(&WEIGHT, "1".parse().unwrap());
        headers.append(&WEIGHT, "1".parse().unwrap());
        assert_eq!(code(stated_weight(&headers)), Err("invalid_weight"));
        let closed = KeyRights::default();
        let open = KeyRights { weight_max_milli: Some(4000), ..KeyRights::default() };
        for (rights, stated, is_allowed) in [
            (&closed, 1, true),
            (&closed, 2000, true),
            (&closed, 2001, false),
            (&open, 4000, true),
            (&open, 4001, false),
        ] {
            assert_eq!(is_weight_allowed(rights, of(2000), of(stated)), is_allowed, "{stated}");
        }
        // A weight_max below the model's weight takes nothing away.
        assert!(is_weight_allowed(&open, of(5000), of(5000)));
    }

    #[test]
    fn headers_go_before_one_another() {
        let mut headers = HeaderMap::new();
        assert_eq!(code(stated_priority(&headers)), Ok(None));
        for (name, value, read) in [
            (&DYNAMO_PRIORITY, "-7", Ok(Some(-7))),
            (&DYNAMO_STRICT_PRIORITY, "2", Ok(Some(2))),
            (&PRIORITY, "1", Ok(Some(1))),
            (&PRIORITY, "high", Err("invalid_priority")),
        ] {
            headers.insert(name, value.parse().unwrap());
            assert_eq!(code(stated_priority(&headers)), read);
        }
    }

    #[test]
    fn a_deadline_is_seconds_or_milliseconds() {
        let mut headers = HeaderMap::new();
        assert_eq!(code(stated_deadline(&headers)), Ok(None));
        for (text, millis) in [("2.5", 2500), ("750ms", 750), ("3s", 3000), ("0.0015", 1)] {
            headers.insert(&DEADLINE, text.parse().unwrap());
            let read = code(stated_deadline(&headers)).unwrap().unwrap();
            assert_eq!(read.as_millis(), millis, "{text}");
        }
        for text in ["", "0", "-1", "soon", "1e3", "2,5", "0.0009", "86401", "1m", "0.5ms", "1."] {
            headers.insert(&DEADLINE, text.parse().unwrap());
            assert_eq!(code(stated_deadline(&headers)), Err("invalid_deadline"), "{text}");
        }
        headers.insert(&DEADLINE, "1".parse().unwrap());
        headers.append(&DEADLINE, "1".parse().unwrap());
        assert_eq!(code(stated_deadline(&headers)), Err("invalid_deadline"));
    }
}
