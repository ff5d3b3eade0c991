use fairgate_core::attribute::Attribute;
use fairgate_core::units::Weight;
use fairgate_journal::parse_policy;
use fairgate_store::{
    Directory, DirectoryLimits, Group, Key, KeyHash, KeyRights, Tenant, UnixMicros,
};

use super::directory_settings::{
    DirectorySettings, ProjectWeight, directory_settings, unenforced_caps,
};

fn directory() -> Directory {
    let limits = DirectoryLimits { in_flight: Some(4), ..DirectoryLimits::default() };
    let created_at = UnixMicros(0);
    let tenant = |name: &str, limits| Tenant {
        requires: Vec::new(),
        name: name.into(),
        group: "a".into(),
        weight: 7,
        disabled: false,
        limits,
        created_at,
    };
    Directory {
        version: 1,
        groups: vec![Group { name: "a".into(), weight: 500, budgets: Vec::new(), created_at }],
        tenants: vec![tenant("capped", limits), tenant("free", DirectoryLimits::default())],
        keys: Vec::new(),
        ..Directory::default()
    }
}

/// The attribute, the flow, the weight, the directory's cap and the policy's cap.
type Told = (&'static str, String, Option<u64>, Option<u64>, Option<u64>);

fn told(policy: &str) -> Vec<Told> {
    let directory = directory();
    let policy = parse_policy(policy).expect("a policy");
    let wanted_settings = |wanted_settings: &DirectorySettings<'_>| {
        let weight = wanted_settings.weight.map(|weight| weight.get());
        (
            wanted_settings.by.name(),
            wanted_settings.flow.to_owned(),
            weight,
            wanted_settings.cap,
            wanted_settings.policy_cap,
        )
    };
    directory_settings(&directory, &[], &policy).iter().map(wanted_settings).collect()
}

#[test]
fn only_what_a_policy_shares_by_is_told_to_it() {
    let tenants = told(r#"{"share":{"by":"tenant","default_cap":9}}"#);
    assert_eq!(
        tenants,
        [
            ("tenant", "capped".to_owned(), Some(7), Some(4), Some(9)),
            ("tenant", "free".to_owned(), Some(7), None, Some(9))
        ]
    );
    // A class that is called like a group keeps its quantum: weights are for share nodes.
    let classes = r#"{"drr":{"by":"group","classes":[{"name":"a","quantum":800}]}}"#;
    assert_eq!(told(classes), []);
    let inside = r#"{"drr":{"by":"class","classes":[{"name":"x","quantum":8,"inside":{"share":{"by":"group"}}}]}}"#;
    assert_eq!(told(inside), [("group", "a".to_owned(), Some(500), None, None)]);
    // Nor does the directory change what a share node says of a class.
    let classes = r#"{"share":{"by":"group","classes":[{"name":"a","weight":3,"cap":2}]}}"#;
    assert_eq!(told(classes), [("group", "a".to_owned(), None, None, Some(2))]);
}

#[test]
fn a_class_of_bands_is_told_caps_and_no_weight() {
    let bands = |by: &str, inside: &str| {
        format!(
            r#"{{"bands":{{"by":"{by}","classes":[{{"name":"capped","cap":6}},{{"name":"a","inside":{inside}}}],"default":"a"}}}}"#
        )
    };
    let share = r#"{"share":{"by":"key"}}"#;
    assert_eq!(
        told(&bands("tenant", share)),
        [
            ("tenant", "capped".to_owned(), None, Some(4), Some(6)),
            ("tenant", "free".to_owned(), None, None, None)
        ]
    );
    assert_eq!(told(&bands("group", share)), [("group", "a".to_owned(), None, None, None)]);
    // Weights of tenants act in a share node inside a band.
    let weights: Vec<_> =
        told(&bands("class", r#"{"share":{"by":"tenant"}}"#)).into_iter().map(|it| it.2).collect();
    assert_eq!(weights, [Some(7), Some(7)]);
    let unheld_in = |policy: &str| {
        let policy = parse_policy(policy).expect("a policy");
        unenforced_caps(&directory(), &policy)
            .into_iter()
            .map(|(_, flow)| flow.to_owned())
            .collect::<Vec<_>>()
    };
    assert!(unheld_in(&bands("tenant", share)).is_empty());
    let default = r#"{"bands":{"by":"tenant","classes":[{"name":"capped"}]}}"#;
    assert_eq!(unheld_in(default), ["capped"], "others are in its class too");
}

#[test]
fn a_weight_that_the_policys_nodes_disagree_on_is_told() {
    let policy = r#"{"drr":{"by":"class","classes":[
        {"name":"x","quantum":8,"inside":{"share":{"by":"group","weights":{"a":500}}}},
        {"name":"y","quantum":8,"inside":{"share":{"by":"group"}}}]}}"#;
    let (directory, policy) = (directory(), parse_policy(policy).expect("a policy"));
    assert_eq!(directory_settings(&directory, &[], &policy)[0].policy_weight, None);
}

#[test]
fn a_cap_that_a_policy_does_not_hold_in_all_is_noticed() {
    let mut directory = directory();
    directory.keys.push(Key {
        id: "key-1".into(),
        tenant: "capped".into(),
        name: String::new(),
        hint: String::new(),
        hash: KeyHash::of(b"fg-1"),
        weight: 100,
        limits: DirectoryLimits { in_flight: Some(1), ..DirectoryLimits::default() },
        rights: KeyRights::default(),
        created_at: UnixMicros(0),
        expires_at: None,
        revoked_at: None,
    });
    let found = |policy: &str| -> Vec<_> {
        let policy = parse_policy(policy).expect("a policy");
        unenforced_caps(&directory, &policy)
            .into_iter()
            .map(|(by, flow)| (by.name(), flow))
            .collect()
    };
    let share =
        |by: &str, inside: &str| format!(r#"{{"share":{{"by":"{by}","inside":{inside}}}}}"#);
    let last = |by: &str| format!(r#"{{"share":{{"by":"{by}"}}}}"#);
    let classes = |by: &str, insides: &[&str]| {
        let class = |(at, inside): (usize, &&str)| {
            format!(r#"{{"name":"{at}","quantum":1,"inside":{inside}}}"#)
        };
        let classes: Vec<_> = insides.iter().enumerate().map(class).collect();
        format!(r#"{{"drr":{{"by":"{by}","classes":[{}]}}}}"#, classes.join(","))
    };
    let (tenant, key) = (("tenant", "capped"), ("key", "key-1"));
    let both = share("tenant", &last("key"));
    assert_eq!(found(&both), []);
    assert_eq!(found(&share("group", &both)), []);
    assert_eq!(found(&classes("class", &[&both, &both])), [], "copies of a flow count together");
    assert_eq!(found(&share("class", &both)), []);
    assert_eq!(found(&share("key", &last("tenant"))), []);
    assert_eq!(found(&share("tenant", &share("agent", &last("key")))), []);
    assert_eq!(found(&last("tenant")), [key]);
    assert_eq!(found(&last("group")), [tenant, key]);
    assert_eq!(found(&classes("group", &[&both, &last("key")])), [tenant]);
    assert_eq!(found(r#"{"load":{"by":"tenant"}}"#), [tenant, key], "only share nodes have caps");
    let listed = |classes: &str| {
        format!(
            r#"{{"share":{{"by":"tenant","classes":[{classes}],"inside":{{"share":{{"by":"key"}}}}}}}}"#
        )
    };
    let (one, other) = (r#"{"name":"capped","weight":1}"#, r#"{"name":"x","weight":1}"#);
    assert_eq!(found(&listed(&format!("{other},{one}"))), []);
    assert_eq!(
        found(&listed(&format!("{one},{other}"))),
        [tenant],
        "others are in the default class"
    );
    assert_eq!(found(&listed(other)), [tenant], "it is in a class with others");
    directory.tenants[0].limits = DirectoryLimits::default();
    directory.keys[0].revoked_at = Some(UnixMicros(1));
    assert_eq!(unenforced_caps(&directory, &parse_policy(&last("group")).expect("a policy")), []);
}

#[test]
fn projects_have_their_weights_where_a_policy_shares_by_project() {
    let projects = [ProjectWeight { id: "web".into(), weight: 300 }];
    let directory = directory();
    let told = |policy| {
        let policy = parse_policy(policy).expect("a policy");
        let wishes = directory_settings(&directory, &projects, &policy);
        let of = wishes.iter().filter(|wanted_settings| wanted_settings.by == Attribute::Project);
        of.map(|wanted_settings| {
            (wanted_settings.flow.to_owned(), wanted_settings.weight.map(Weight::get))
        })
        .collect::<Vec<_>>()
    };
    let tree = r#"{"share":{"by":"tenant","inside":{"share":{"by":"project"}}}}"#;
    assert_eq!(told(tree), [("web".to_owned(), Some(300))]);
    assert!(told(r#"{"share":{"by":"tenant"}}"#).is_empty());
}
