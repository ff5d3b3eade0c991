//! What a request chooses for itself, by header or by a hint in its body, checked against what its key may choose: the
//! policy class, the priority, the worker, and the taints that the worker must have. A header wins over the body.

use bytes::Bytes;
use fairgate_core::event::Pin;
use fairgate_dialect::Ask;
use fairgate_store::{PRIORITY_MAX, PRIORITY_MIN, Rights};
use http::{HeaderMap, HeaderName};

use super::ask::named;
use crate::pools::Setup;
use crate::refusal::{self, Refusal};

const CLASS: HeaderName = HeaderName::from_static("x-fairgate-class");
const PRIORITY: HeaderName = HeaderName::from_static("x-fairgate-priority");
const WORKER: HeaderName = HeaderName::from_static("x-fairgate-worker");
const REQUIRES: HeaderName = HeaderName::from_static("x-fairgate-requires");
/// What Dynamo's clients send for the same. Its strict priority orders a queue as ours does, so it goes before the other.
const DYNAMO_CLASS: HeaderName = HeaderName::from_static("x-dynamo-meta-policy-class");
const DYNAMO_STRICT_PRIORITY: HeaderName =
    HeaderName::from_static("x-dynamo-request-strict-priority");
const DYNAMO_PRIORITY: HeaderName = HeaderName::from_static("x-dynamo-request-priority");
/// How many taints a request may require.
const TAINTS_MAX: usize = 16;
/// The longest name of a taint, in bytes.
const TAINT_BYTES_MAX: usize = 128;

/// What a request chose, all of which its key may choose.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    /// The class or family; the policy's default where absent.
    pub(super) class: Option<Box<str>>,
    /// Higher goes first within its queue. [`PRIORITY_MIN`] to [`PRIORITY_MAX`].
    pub(super) priority: i64,
    pub(super) pin: Option<Pin>,
    /// The taints that its worker must have, without repetitions.
    pub(super) requires: Vec<Box<str>>,
}

/// Reads what a request chooses, and refuses what its key may not choose.
pub(super) fn chosen(
    rights: &Rights,
    setup: &Setup,
    headers: &HeaderMap,
    ask: &Ask,
    body: &Bytes,
) -> Result<Chosen, Refusal> {
    let hints = ask.hints(body)?;
    let named_class = first_named(headers, [&CLASS, &DYNAMO_CLASS])?;
    let class = class(rights, Offered::by(setup), named_class)?;
    let priority = stated_priority(headers)?.or(hints.priority);
    let taints = match headers.contains_key(&REQUIRES) {
        true => required_taints(headers)?,
        false => hints.required_taints,
    };
    Ok(Chosen {
        class,
        priority: checked_priority(rights, priority.unwrap_or(0), PRIORITY.as_str())?,
        pin: named(headers, &WORKER)?.map(|name| pin(rights, setup, &name)).transpose()?,
        requires: checked_taints(rights, taints)?,
    })
}

/// What a lease states of a class and a priority, checked in the same way.
pub(super) fn stated(
    rights: &Rights,
    setup: &Setup,
    class_named: Option<Box<str>>,
    priority: i64,
) -> Result<Chosen, Refusal> {
    let class = class(rights, Offered::by(setup), class_named)?;
    let priority = checked_priority(rights, priority, "priority")?;
    Ok(Chosen { class, priority, ..Chosen::default() })
}

/// The classes and families of a pool's policy.
#[derive(Clone, Copy)]
struct Offered<'a> {
    names: &'a [Box<str>],
    /// Whether every other name would stand for the policy's default. Else each name is a class of its own.
    are_all: bool,
    /// Whether they are those of a policy file.
    of_file: bool,
}

impl<'a> Offered<'a> {
    fn by(setup: &'a Setup) -> Self {
        Self {
            names: &setup.class_names,
            are_all: setup.lists_classes,
            of_file: setup.config.classes.is_some(),
        }
    }
}

/// The class or family that a request goes by: the one that it names, if the key may use it; else the first of the key's
/// list that the policy has; else none, which is the policy's default. With a policy file a name that the file does not have
/// stands for the default too, as in Dynamo, if the key has no list.
///
/// A list may have classes of other pools. Here they would stand for the default class, which the key may not be meant to have:
/// so they count for nothing, and a key that has none of the policy's classes is refused.
fn class(
    rights: &Rights,
    offered: Offered<'_>,
    named: Option<Box<str>>,
) -> Result<Option<Box<str>>, Refusal> {
    let of_policy = offered.names.iter().map(|class| &**class);
    let Some(list) = rights.classes.as_deref() else {
        let Some(name) = named else { return Ok(None) };
        let allowed: Vec<&str> = of_policy.collect();
        return match allowed.contains(&&*name) {
            true => Ok(Some(name)),
            false if offered.of_file => Ok(None),
            false => Err(refusal::forbidden_class(&name, &allowed)),
        };
    };
    let is_here = |name: &&str| !offered.are_all || of_policy.clone().any(|class| class == *name);
    let allowed: Vec<&str> = list.iter().map(String::as_str).filter(is_here).collect();
    match named {
        _ if allowed.is_empty() && !list.is_empty() => Err(refusal::classes_of_other_pools(list)),
        None => Ok(allowed.first().map(|first| Box::from(*first))),
        Some(name) if allowed.contains(&&*name) => Ok(Some(name)),
        Some(name) => Err(refusal::forbidden_class(&name, &allowed)),
    }
}

fn first_named(headers: &HeaderMap, names: [&HeaderName; 2]) -> Result<Option<Box<str>>, Refusal> {
    Ok(match named(headers, names[0])? {
        Some(name) => Some(name),
        None => named(headers, names[1])?,
    })
}

/// The priority in a header, where there is one.
fn stated_priority(headers: &HeaderMap) -> Result<Option<i64>, Refusal> {
    for header in [&PRIORITY, &DYNAMO_STRICT_PRIORITY, &DYNAMO_PRIORITY] {
        let Some(value) = headers.get(header) else { continue };
        let number = value.to_str().ok().and_then(|text| text.parse().ok());
        return number.map(Some).ok_or_else(|| refusal::bad_priority(header.as_str()));
    }
    Ok(None)
}

/// `stated_in`: the header or the field.
fn checked_priority(rights: &Rights, priority: i64, stated_in: &str) -> Result<i64, Refusal> {
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

/// A worker's name, and maybe the rank behind a slash.
fn pin(rights: &Rights, setup: &Setup, stated: &str) -> Result<Pin, Refusal> {
    if !rights.may_pin {
        return Err(refusal::forbidden_pin(stated));
    }
    // A name may have a slash itself, so the whole is tried first.
    let ranked = || {
        let (name, rank) = stated.rsplit_once('/')?;
        Some((setup.worker(name)?, Some(rank.parse::<u32>().ok()?)))
    };
    let whole = setup.worker(stated).map(|worker| (worker, None));
    match whole.or_else(ranked) {
        Some((worker, rank)) => Ok(Pin { worker: (&*worker.upstream.name).into(), rank }),
        None => {
            let workers: Vec<&str> =
                setup.workers.iter().map(|worker| &*worker.upstream.name).collect();
            Err(refusal::unknown_worker(stated, &workers))
        }
    }
}

/// The taints in the headers: a list with commas, which may go on in another header of the same name.
fn required_taints(headers: &HeaderMap) -> Result<Vec<String>, Refusal> {
    let mut taints = Vec::new();
    for value in headers.get_all(&REQUIRES) {
        let list = value.to_str().map_err(|_| refusal::bad_taints(TAINTS_MAX, TAINT_BYTES_MAX))?;
        taints.extend(list.split(',').map(|taint| taint.trim().to_owned()));
    }
    Ok(taints)
}

fn checked_taints(rights: &Rights, mut taints: Vec<String>) -> Result<Vec<Box<str>>, Refusal> {
    taints.sort_unstable();
    taints.dedup();
    let fits = |taint: &String| {
        (1..=TAINT_BYTES_MAX).contains(&taint.len()) && taint.bytes().all(|b| b.is_ascii_graphic())
    };
    if taints.len() > TAINTS_MAX || !taints.iter().all(fits) {
        return Err(refusal::bad_taints(TAINTS_MAX, TAINT_BYTES_MAX));
    }
    if let Some(allowed) = &rights.taints.0
        && let Some(taint) = taints.iter().find(|taint| !allowed.contains(taint))
    {
        let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
        return Err(refusal::forbidden_taint(taint, &allowed));
    }
    Ok(taints.into_iter().map(String::into_boxed_str).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code<T>(result: Result<T, Refusal>) -> Result<T, &'static str> {
        result.map_err(|refusal| refusal.problem.code)
    }

    #[test]
    fn a_class_is_one_of_the_keys_or_of_the_policys() {
        let policy: Vec<Box<str>> = vec!["chat".into(), "batch".into()];
        let offered = |are_all, of_file| Offered { names: &policy, are_all, of_file };
        let listed = |names: &[&str]| Rights {
            classes: Some(names.iter().map(|&name| name.into()).collect()),
            ..Rights::default()
        };
        let ask = |rights: &Rights, name: Option<&str>| {
            code(class(rights, offered(true, false), name.map(Into::into)))
                .map(|class| class.map(String::from).unwrap_or_default())
        };
        let forbidden = Err("class_not_allowed");
        let all = Rights::default();
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
        assert_eq!(ask(&listed(&[]), None), Ok(String::new()));
        assert_eq!(ask(&listed(&[]), Some("chat")), forbidden);
    }

    #[test]
    fn a_priority_may_always_be_lowered() {
        let rights = Rights { priority_max: 3, ..Rights::default() };
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
    fn taints_are_few_short_and_allowed() {
        let taints = |allowed: Option<&[&str]>, asked: &[&str]| {
            let list = allowed.map(|list| list.iter().map(|&name| name.into()).collect());
            let rights =
                Rights { taints: fairgate_store::AllowedTaints(list), ..Rights::default() };
            code(checked_taints(&rights, asked.iter().map(|&name| name.into()).collect()))
                .map(|taints| taints.len())
        };
        assert_eq!(taints(Some(&[]), &[]), Ok(0));
        assert_eq!(taints(Some(&[]), &["eu"]), Err("taint_not_allowed"));
        assert_eq!(taints(Some(&["eu"]), &["eu", "eu"]), Ok(1));
        assert_eq!(taints(None, &["anything"]), Ok(1));
        let long = "x".repeat(129);
        for bad in [vec![""], vec!["a b"], vec!["ü"], vec![long.as_str()]] {
            assert_eq!(taints(None, &bad), Err("invalid_taints"));
        }
        let many: Vec<String> = (0..17).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(taints(None, &many), Err("invalid_taints"));
    }
}
