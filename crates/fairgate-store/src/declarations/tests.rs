use super::*;
use crate::budget::{BudgetPeriod, BudgetTier, BudgetUnit};
use crate::directory::DirectoryLimits;
use crate::key_rights::KeyRights;

const NOW: UnixMicros = UnixMicros(1_000);

fn group(name: &str) -> DeclaredObject<Group> {
    let object =
        Group { name: name.into(), weight: 100, budgets: Vec::new(), created_at: UnixMicros(0) };
    DeclaredObject { line: 1, object }
}

fn tenant(name: &str) -> DeclaredObject<Tenant> {
    let object = Tenant {
        name: name.into(),
        group: "people".into(),
        weight: 100,
        disabled: false,
        limits: DirectoryLimits::default(),
        requires: Vec::new(),
        created_at: UnixMicros(0),
    };
    DeclaredObject { line: 2, object }
}

fn key(tenant: &str, name: &str, secret: &str) -> DeclaredObject<Key> {
    let object = Key {
        id: String::new(),
        tenant: tenant.into(),
        name: name.into(),
        hint: String::new(),
        hash: KeyHash::of(secret.as_bytes()),
        weight: 100,
        limits: DirectoryLimits::default(),
        rights: KeyRights::default(),
        created_at: UnixMicros(0),
        expires_at: None,
        revoked_at: None,
    };
    DeclaredObject { line: 3, object }
}

/// Returns declarations of one group, two tenants, and one key of each tenant.
fn file() -> Declarations {
    Declarations {
        file: "fairgate.yaml".into(),
        gateway: "one".into(),
        is_stated: true,
        groups: vec![group("people")],
        tenants: vec![tenant("chat"), tenant("batch")],
        keys: vec![key("chat", "prod", "a"), key("batch", "prod", "b")],
    }
}

fn plan(declared: &Declarations, directory: &Directory) -> DeclarationPlan {
    plan_declarations(declared, directory, NOW).unwrap()
}

/// Returns the directory after the changes of the plan for these declarations.
fn applied(declared: &Declarations, directory: &Directory) -> Directory {
    let DeclarationPlan { steps, records, source, .. } = plan(declared, directory);
    let mut next = directory.clone();
    for DeclarationStep { change, .. } in steps {
        match change {
            DeclaredChange::Group(_, group) => {
                next.groups.retain(|other| other.name != group.name);
                next.groups.push(group);
            }
            DeclaredChange::Tenant(_, tenant) => {
                next.tenants.retain(|other| other.name != tenant.name);
                next.tenants.push(*tenant);
            }
            DeclaredChange::Key(_, key) => {
                next.keys.retain(|other| other.id != key.id);
                next.keys.push(*key);
            }
        }
    }
    let mut notes = next.declared.clone();
    for record in records {
        notes.retain(|other| (other.kind, &other.name) != (record.kind, &record.name));
        notes.push(record);
    }
    let source = source.or(next.declared_source.clone());
    next.set_declarations(notes, source);
    next
}

fn actions(plan: &DeclarationPlan) -> Vec<String> {
    let words = plan.steps.iter().map(ToString::to_string);
    // Ids of keys follow from their hashes.
    words.map(|step| step.split(" (key-").next().unwrap_or_default().to_owned()).collect()
}

fn kinds(plan: &DeclarationPlan) -> Vec<DeclarationAction> {
    plan.steps.iter().map(|step| step.action).collect()
}

#[test]
fn a_file_creates_what_is_missing_and_then_changes_nothing() {
    let declared = file();
    let first = plan(&declared, &Directory::default());
    assert_eq!(kinds(&first), [DeclarationAction::Create; 5]);
    assert_eq!(actions(&first)[0], "group people: created, fairgate.yaml:1");
    assert_eq!(first.disabled(), 0);
    let directory = applied(&declared, &Directory::default());
    assert!(plan(&declared, &directory).is_empty());
    assert!(directory.declaration(DeclaredKind::Tenant, "chat").is_some());
    assert!(directory.keys.iter().all(|key| key.id.len() == 20 && key.created_at == NOW));
    assert_eq!(applied(&declared, &Directory::default()), directory, "ids follow from the file");
}

#[test]
fn a_moved_line_is_noted_and_is_no_change() {
    let mut declared = file();
    let directory = applied(&declared, &Directory::default());
    declared.tenants[0].line = 70;
    let moved = plan(&declared, &directory);
    assert_eq!((moved.steps.len(), moved.records.len(), moved.source), (0, 1, None));
}

#[test]
fn settings_are_changed_and_order_does_not_matter() {
    let mut declared = file();
    let budget =
        |period| Budget { period, unit: BudgetUnit::Tokens, tier: BudgetTier::Any, amount: 5 };
    declared.groups[0].object.budgets =
        vec![budget(BudgetPeriod::Month), budget(BudgetPeriod::Day)];
    let directory = applied(&declared, &Directory::default());
    declared.groups[0].object.budgets.reverse();
    declared.tenants.reverse();
    assert_eq!(kinds(&plan(&declared, &directory)), []);
    declared.tenants[0].object.weight = 300;
    declared.keys[0].object.rights.models = Some(vec!["gpt-*".into()]);
    assert_eq!(kinds(&plan(&declared, &directory)), [DeclarationAction::Change; 2]);
}

#[test]
fn what_is_no_longer_declared_is_disabled_and_comes_back() {
    let mut declared = file();
    declared.tenants.push(tenant("tools"));
    let before = applied(&declared, &Directory::default());
    let lost = (declared.tenants.remove(1), declared.keys.remove(1));
    let removal = plan(&declared, &before);
    assert_eq!((removal.disabled(), removal.usable, removal.disables_most()), (2, 5, false));
    assert_eq!(actions(&removal)[0], "key prod of tenant batch");
    assert_eq!(actions(&removal)[1], "tenant batch: disabled, no longer declared");
    let after = applied(&declared, &before);
    assert!(after.keys.iter().any(|key| key.tenant == "batch" && key.revoked_at == Some(NOW)));
    assert!(after.declaration(DeclaredKind::Tenant, "batch").is_none());
    assert!(plan(&declared, &after).is_empty());
    declared.tenants.insert(1, lost.0);
    declared.keys.insert(1, lost.1);
    assert_eq!(kinds(&plan(&declared, &after)), [DeclarationAction::Change; 2]);
    let back = applied(&declared, &after);
    assert!(back.keys.iter().all(|key| key.revoked_at.is_none()));
    assert!(back.tenants.iter().all(|tenant| !tenant.disabled));
}

#[test]
fn more_than_half_is_noticed() {
    let mut declared = file();
    let directory = applied(&declared, &Directory::default());
    declared.keys.clear();
    let half = plan(&declared, &directory);
    assert_eq!((half.disabled(), half.usable, half.disables_most()), (2, 4, false));
    declared.tenants.pop();
    assert!(plan(&declared, &directory).disables_most());
    let none = Declarations { groups: vec![], tenants: vec![], keys: vec![], ..file() };
    let all = plan(&none, &directory);
    assert_eq!((all.disabled(), all.steps.len()), (4, 5), "the group is released");
}

#[test]
fn what_no_file_declared_stays() {
    let mut declared = file();
    let mut directory = applied(&declared, &Directory::default());
    directory.tenants.push(tenant("by-hand").object);
    directory.keys.push(Key { id: "key-x".into(), ..key("chat", "by-hand", "x").object });
    declared.tenants[0].object.weight = 1;
    let next = plan(&declared, &directory);
    assert_eq!(actions(&next), ["tenant chat: changed, fairgate.yaml:2"]);
}

#[test]
fn existing_objects_are_taken_over() {
    let declared = file();
    let mut directory = applied(&declared, &Directory::default());
    directory.set_declarations(Vec::new(), None);
    directory.tenants[0].weight = 7;
    let taken = kinds(&plan(&declared, &directory));
    let declared_as_is = taken.iter().filter(|action| **action == DeclarationAction::Declare);
    assert_eq!(declared_as_is.count(), 4);
    assert!(taken.contains(&DeclarationAction::Change));
}

#[test]
fn a_key_keeps_its_id_with_another_secret_or_another_name() {
    let mut declared = file();
    let directory = applied(&declared, &Directory::default());
    let id = |directory: &Directory, secret: &str| {
        let hash = KeyHash::of(secret.as_bytes());
        directory.keys.iter().find(|key| key.hash == hash).map(|key| key.id.clone())
    };
    declared.keys[0] = key("chat", "prod", "c");
    assert_eq!(kinds(&plan(&declared, &directory)), [DeclarationAction::Rotate]);
    let rotated = applied(&declared, &directory);
    assert_eq!(id(&rotated, "c"), id(&directory, "a"));
    declared.keys[0] = key("chat", "renamed", "c");
    assert_eq!(kinds(&plan(&declared, &rotated)), [DeclarationAction::Change]);
    let renamed = applied(&declared, &rotated);
    assert_eq!(id(&renamed, "c"), id(&directory, "a"));
    // Two keys exchange their secrets: each secret stays with its id.
    let mut two = file();
    two.keys = vec![key("chat", "x", "1"), key("chat", "y", "2")];
    let before = applied(&two, &Directory::default());
    two.keys = vec![key("chat", "x", "2"), key("chat", "y", "1")];
    let after = applied(&two, &before);
    assert_eq!((id(&after, "1"), id(&after, "2")), (id(&before, "1"), id(&before, "2")));
}

#[test]
fn secrets_of_others_and_of_revoked_keys_are_refused() {
    let declared = file();
    let mut directory = Directory::default();
    directory.keys.push(Key { id: "key-x".into(), ..key("other", "", "b").object });
    let conflict = plan_declarations(&declared, &directory, NOW).unwrap_err();
    assert_eq!((conflict.line, &*conflict.field), (3, "keys[1].secret"));
    assert!(conflict.problem.contains("of the tenant \"other\""), "{conflict}");
    directory.keys[0].tenant = "batch".into();
    directory.keys[0].revoked_at = Some(UnixMicros(5));
    let conflict = plan_declarations(&declared, &directory, NOW).unwrap_err();
    assert!(conflict.problem.contains("was revoked"), "{conflict}");
}

#[test]
fn another_gateways_file_is_replaced_and_a_file_without_sections_leaves_it() {
    let mut declared = file();
    let directory = applied(&declared, &Directory::default());
    declared.gateway = "two".into();
    declared.file = "other.yaml".into();
    let same = plan(&declared, &directory);
    assert_eq!((same.steps.len(), same.replaces), (0, None), "it declares the same");
    declared.tenants[0].object.weight = 5;
    let other = plan(&declared, &directory);
    assert_eq!(other.replaces.map(|source| source.gateway).as_deref(), Some("one"));
    let nothing = Declarations {
        file: "third.yaml".into(),
        gateway: "three".into(),
        ..Declarations::default()
    };
    let left = plan(&nothing, &directory);
    assert!(left.is_empty() && left.leaves.is_some());
    let emptied = Declarations { file: "fairgate.yaml".into(), ..nothing };
    assert_eq!(plan(&emptied, &directory).disabled(), 4, "it had the sections before");
}
