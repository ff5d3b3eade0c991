use fairgate_journal::parse_policy;
use fairgate_store::{Directory, Group, Limits, Tenant, UnixMicros};

use super::wishes::{Wish, wishes};

fn directory() -> Directory {
    let limits = Limits { in_flight: Some(4), ..Limits::default() };
    let created_at = UnixMicros(0);
    let tenant = |name: &str, limits| Tenant {
        name: name.into(),
        group: "a".into(),
        weight: 7,
        disabled: false,
        limits,
        created_at,
    };
    Directory {
        version: 1,
        groups: vec![Group { name: "a".into(), weight: 500, created_at }],
        tenants: vec![tenant("capped", limits), tenant("free", Limits::default())],
        keys: Vec::new(),
    }
}

/// By what, flow, weight, the directory's cap, the policy's cap.
type Told = (&'static str, String, u64, Option<u64>, Option<u64>);

fn told(policy: &str) -> Vec<Told> {
    let directory = directory();
    let policy = parse_policy(policy).expect("a policy");
    let wish = |wish: &Wish<'_>| {
        (wish.by.name(), wish.flow.to_owned(), wish.weight.get(), wish.cap, wish.policy_cap)
    };
    wishes(&directory, &policy).iter().map(wish).collect()
}

#[test]
fn only_what_a_policy_shares_by_is_told_to_it() {
    let tenants = told(r#"{"share":{"by":"tenant","default_cap":9}}"#);
    assert_eq!(
        tenants,
        [
            ("tenant", "capped".to_owned(), 7, Some(4), Some(9)),
            ("tenant", "free".to_owned(), 7, None, Some(9))
        ]
    );
    // A class that is called like a group keeps its quantum: weights are for share nodes.
    let classes = r#"{"drr":{"by":"group","classes":[{"name":"a","quantum":800}]}}"#;
    assert_eq!(told(classes), []);
    let inside = r#"{"drr":{"by":"class","classes":[{"name":"x","quantum":8,"inside":{"share":{"by":"group"}}}]}}"#;
    assert_eq!(told(inside), [("group", "a".to_owned(), 500, None, None)]);
}

#[test]
fn a_weight_that_the_policys_nodes_disagree_on_is_told() {
    let policy = r#"{"drr":{"by":"class","classes":[
        {"name":"x","quantum":8,"inside":{"share":{"by":"group","weights":{"a":500}}}},
        {"name":"y","quantum":8,"inside":{"share":{"by":"group"}}}]}}"#;
    let (directory, policy) = (directory(), parse_policy(policy).expect("a policy"));
    assert_eq!(wishes(&directory, &policy)[0].policy_weight, None);
}
