use fairgate_store::{Budget, BudgetPeriod, BudgetUnit, DirectoryLimits, Group};
use http::HeaderValue;

use super::*;

const NOW: UnixMicros = UnixMicros(1_000_000);

fn key(id: &str, tenant: &str, secret: &str) -> Key {
    Key {
        id: id.into(),
        tenant: tenant.into(),
        name: String::new(),
        hint: "fg-".into(),
        hash: KeyHash::of(secret.as_bytes()),
        weight: 100,
        limits: DirectoryLimits::default(),
        rights: KeyRights::default(),
        created_at: UnixMicros(0),
        expires_at: None,
        revoked_at: None,
    }
}

fn tenant(name: &str) -> Tenant {
    Tenant {
        requires: Vec::new(),
        name: name.into(),
        group: "research".into(),
        weight: 100,
        disabled: false,
        limits: DirectoryLimits::default(),
        created_at: UnixMicros(0),
    }
}

fn directory() -> Directory {
    let mut expired = key("key-expired", "chat", "fg-expired");
    expired.expires_at = Some(NOW);
    let mut expiring = key("key-expiring", "chat", "fg-expiring");
    expiring.expires_at = Some(UnixMicros(NOW.0 + 1));
    let mut revoked = key("key-revoked", "chat", "fg-revoked");
    // Another gateway's clock may be ahead of ours: revoked is revoked.
    revoked.revoked_at = Some(UnixMicros(NOW.0 + 5));
    let mut disabled = tenant("off");
    disabled.disabled = true;
    let mut paid = tenant("paid");
    paid.limits.budgets.push(Budget::tokens(5, BudgetPeriod::Day));
    Directory {
        version: 1,
        groups: vec![Group {
            name: "research".into(),
            weight: 100,
            budgets: Vec::new(),
            created_at: UnixMicros(0),
        }],
        tenants: vec![tenant("chat"), disabled, paid],
        keys: vec![
            key("key-good", "chat", "fg-good"),
            expired,
            expiring,
            revoked,
            key("key-off", "off", "fg-off"),
            key("key-paid", "paid", "fg-paid"),
            key("key-orphan", "nobody", "fg-orphan"),
        ],
        ..Directory::default()
    }
}

fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        headers.append(*name, HeaderValue::from_str(value).expect("a header value"));
    }
    headers
}

fn ask(list: &[(&'static str, &str)]) -> Result<Arc<Caller>, (u16, &'static str)> {
    let identity = CallerDirectory::of(directory());
    identity
        .caller(&headers(list), NOW)
        .map_err(|refusal| (refusal.problem.status.as_u16(), refusal.code.as_str()))
}

fn key_of(list: &[(&'static str, &str)]) -> Result<String, (u16, &'static str)> {
    ask(list).map(|caller| caller.key.to_string())
}

#[test]
fn a_key_is_taken_from_either_header() {
    let good = Ok("key-good".to_owned());
    assert_eq!(key_of(&[("authorization", "Bearer fg-good")]), good);
    assert_eq!(key_of(&[("authorization", "bEARER   fg-good ")]), good);
    assert_eq!(key_of(&[("x-api-key", "fg-good")]), good);
    assert_eq!(key_of(&[("x-api-key", "fg-good"), ("authorization", "Bearer fg-good")]), good);
}

#[test]
fn what_is_no_single_known_key_is_refused() {
    let invalid = Err((401, "invalid_api_key"));
    assert_eq!(key_of(&[]), invalid);
    assert_eq!(key_of(&[("authorization", "Basic fg-good")]), invalid);
    assert_eq!(key_of(&[("authorization", "Bearerfg-good")]), invalid);
    assert_eq!(key_of(&[("authorization", "Bearer")]), invalid);
    assert_eq!(key_of(&[("authorization", "Bearer ")]), invalid);
    assert_eq!(key_of(&[("x-api-key", "")]), invalid);
    assert_eq!(key_of(&[("x-api-key", "fg-unknown")]), invalid);
    assert_eq!(key_of(&[("x-api-key", &"a".repeat(257))]), invalid);
    assert_eq!(key_of(&[("x-api-key", "fg-good"), ("authorization", "Bearer fg-paid")]), invalid);
    assert_eq!(key_of(&[("x-api-key", "fg-good"), ("x-api-key", "fg-paid")]), invalid);
    assert_eq!(key_of(&[("x-api-key", "fg-good"), ("authorization", "Basic abc")]), invalid);
    assert_eq!(key_of(&[("x-api-key", "fg-orphan")]), invalid, "its tenant is not there");
}

#[test]
fn a_key_that_may_not_is_told_why() {
    assert_eq!(key_of(&[("x-api-key", "fg-revoked")]), Err((401, "key_revoked")));
    assert_eq!(key_of(&[("x-api-key", "fg-expired")]), Err((401, "key_expired")));
    assert_eq!(key_of(&[("x-api-key", "fg-expiring")]), Ok("key-expiring".to_owned()));
    assert_eq!(key_of(&[("x-api-key", "fg-off")]), Err((403, "tenant_disabled")));
}

#[test]
fn a_caller_knows_its_group_and_whether_it_has_a_budget() {
    let caller = ask(&[("x-api-key", "fg-paid")]).expect("known");
    assert_eq!((&*caller.group, &*caller.tenant, caller.budgeted), ("research", "paid", true));
    assert!(!ask(&[("x-api-key", "fg-good")]).expect("known").budgeted);
}

#[test]
fn no_error_repeats_the_key() {
    let identity = CallerDirectory::of(directory());
    for secret in ["fg-revoked", "fg-expired", "fg-off", "fg-unknown"] {
        let refusal =
            identity.caller(&headers(&[("x-api-key", secret)]), NOW).expect_err("refused");
        assert!(!refusal.problem.message.contains(secret), "{}", refusal.problem.message);
    }
    assert!(!format!("{identity:?}").contains("fg-good"));
}

#[test]
fn who_was_let_in_is_asked_again() {
    let identity = CallerDirectory::of(directory());
    let caller = |secret| identity.caller(&headers(&[("x-api-key", secret)]), NOW).expect("known");
    let (good, expiring) = (caller("fg-good"), caller("fg-expiring"));
    let later = UnixMicros(NOW.0 + 1);
    let code =
        |caller: &Caller| identity.recheck(caller, later).map_err(|refusal| refusal.code.as_str());
    assert_eq!((code(&good), code(&expiring)), (Ok(()), Err("key_expired")));
    let mut next = directory();
    next.tenants[0].disabled = true;
    identity.index.store(Arc::new(CallerIndex::new(next)));
    assert_eq!(code(&good), Err("tenant_disabled"));
    let mut next = directory();
    // Under the same id, another secret.
    next.keys[0].hash = KeyHash::of(b"fg-new");
    identity.index.store(Arc::new(CallerIndex::new(next)));
    assert_eq!(code(&good), Err("invalid_api_key"));
}

#[test]
fn budgets_of_the_group_and_of_the_hosted_tier_concern_every_caller() {
    let caller = |change: fn(&mut Directory)| {
        let mut directory = directory();
        change(&mut directory);
        let identity = CallerDirectory::of(directory);
        let headers = headers(&[("x-api-key", "fg-good")]);
        let caller = identity.caller(&headers, NOW).expect("let in");
        (caller.budgeted, caller.hosted_budgeted, caller.may_use_hosted)
    };
    let hosted = || Budget {
        period: BudgetPeriod::Day,
        unit: BudgetUnit::Money,
        tier: BudgetTier::Hosted,
        amount: 5,
    };
    assert_eq!(caller(|_| {}), (false, false, true));
    let of_group =
        |it: &mut Directory| it.groups[0].budgets.push(Budget::tokens(5, BudgetPeriod::Day));
    assert_eq!(caller(of_group), (true, false, true));
    let mut with_tier = directory();
    with_tier.hosted.push(hosted());
    let identity = CallerDirectory::of(with_tier);
    let all = identity.caller(&headers(&[("x-api-key", "fg-good")]), NOW).expect("let in");
    assert!(!all.budgeted && all.hosted_budgeted);
    let never = |it: &mut Directory| it.tenants[0].limits.hosted = HostedUse::Never;
    assert_eq!(caller(never), (false, false, false));
}
