//! Cases of strict classes: the fairness that they report, and the meters that are kept.

use fairgate_core::event::Event;
use fairgate_core::fairness::{FlowFairness, NodeFairness};

use super::scene::Scene;

const BANDS: &str = r#"{"bands":{"by":"class","classes":[{"name":"a","cap":1},{"name":"b"},{"name":"c"}],"default":"c"}}"#;

/// Returns the fairness of the node with this path; `None` if there is none.
fn node(scene: &Scene, path: &[&str]) -> Option<NodeFairness> {
    let is_it = |node: &NodeFairness| node.path.iter().map(|name| &**name).eq(path.iter().copied());
    scene.pool.fairness().into_iter().find(is_it)
}

/// Returns the fairness of a class of the node with this path; `None` if there is none.
fn class(scene: &Scene, path: &[&str], name: &str) -> Option<FlowFairness> {
    node(scene, path)?.flows.into_iter().find(|flow| *flow.name == *name)
}

#[test]
fn a_band_shows_what_it_got_and_no_due() {
    let mut scene = Scene::new(2, BANDS);
    assert_eq!(scene.ask("a1", "class:a", 5), "a1");
    let got = |scene: &Scene, name: &str| class(scene, &[], name).map(|flow| flow.got);
    assert_eq!(got(&scene, "a"), Some(5));
    assert_eq!(scene.release_using("a1", 9), "");
    assert_eq!(got(&scene, "a"), Some(9));
    assert_eq!(scene.ask("b1", "class:b", 7), "b1");
    assert_eq!(scene.release_using("b1", 2), "");
    assert_eq!(scene.ask("b2", "class:b", 30), "b2");
    assert_eq!(got(&scene, "b"), Some(32));
    let flow = class(&scene, &[], "b").expect("something is in flight in it");
    assert_eq!((flow.weight, flow.due, flow.lag, flow.cap_use), (None, None, None, None));
    assert!(flow.is_within_bound(), "nothing is promised");
    assert_eq!(flow.goes_before, Some(vec!["c".into()]));
    let flow = class(&scene, &[], "a").expect("it was served");
    assert_eq!(flow.goes_before, Some(vec!["b".into(), "c".into()]));
}

#[test]
fn a_band_without_requests_keeps_what_its_meters_say() {
    let mut scene = Scene::new(1, BANDS);
    // b was served and has no cap.
    scene.ask("b1", "class:b", 7);
    scene.release("b1");
    assert_eq!(class(&scene, &[], "b").map(|flow| flow.got), Some(7));
    // Something waited under the cap of a and was never served.
    scene.ask("b2", "class:b", 1);
    scene.at(10).ask("a1", "class:a", 5);
    scene.at(30).cancel("a1");
    let flow = class(&scene, &[], "a").expect("its cap was used");
    assert_eq!(flow.got, 0);
    let cap_use = flow.cap_use.expect("something waited");
    assert_eq!((cap_use.used, cap_use.allowed), (0, 20));
    // c was never there.
    assert!(class(&scene, &[], "c").is_none());
}

/// No meters are kept inside a flow name that was used once. The class starts at 0 when the name returns, also after a
/// restart.
#[test]
fn a_band_inside_a_passing_name_forgets_its_meters() {
    let policy = format!(r#"{{"share":{{"by":"tenant","inside":{BANDS}}}}}"#);
    let mut scene = Scene::new(4, &policy);
    scene.ask("b1", "tenant:x class:b", 3);
    scene.ask("a1", "tenant:x class:a", 5);
    scene.release("a1");
    assert!(class(&scene, &["x"], "a").is_none());
    scene.ask("a2", "tenant:x class:a", 6);
    let flow = class(&scene, &["x"], "a").expect("something is in flight in it");
    assert_eq!(flow.got, 6);
    // Its cap is still there.
    assert_eq!(scene.ask("a3", "tenant:x class:a", 6), "");
}

/// The use of a cap is that of the policy's cap until an event sets a cap. Then it is that of the event's cap, over all
/// copies of the class.
#[test]
fn the_use_of_a_cap_is_that_of_the_cap_in_force() {
    let mut scene = Scene::new(9, BANDS);
    scene.ask("a1", "class:a", 1);
    scene.ask("a2", "class:a", 1);
    let used = |scene: &Scene| {
        let cap_use = class(scene, &[], "a").and_then(|flow| flow.cap_use);
        cap_use.map(|cap_use| (cap_use.used, cap_use.allowed))
    };
    scene.at(10).apply(Event::Tick);
    assert_eq!(used(&scene), Some((10, 10)));
    scene.at(10).cap("class:a", Some(3));
    scene.ask("a3", "class:a", 1);
    scene.ask("a4", "class:a", 1);
    scene.at(20).apply(Event::Tick);
    assert_eq!(used(&scene), Some((30, 30)));
    // An event that comes before the first request counts from the start.
    let mut scene = Scene::new(9, BANDS);
    scene.cap("class:a", None);
    scene.capacity(0);
    scene.ask("a1", "class:a", 1);
    scene.at(20).apply(Event::Tick);
    assert_eq!(used(&scene), None);
    let counted = scene.pool.snapshot().root.flows[0].band.map(|band| band.cap_use.allowed);
    assert_eq!(counted, Some(0), "the policy's cap is not in force");
}
