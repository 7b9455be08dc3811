//! A design is carried out whole or not at all: every step is made to fail in turn.

use control::{Design, Space, carry_out, design, transaction};
use filter::Spaces;
use std::sync::{Arc, Mutex};
use testkit::space::Contents;
use testkit::{FussySpace, Wishes};

type Watched = (Vec<Box<dyn Space>>, Vec<Arc<Mutex<Contents>>>);

/// A daemon with wishes and an application without.
fn spaces(wishes: Wishes) -> Watched {
    let (daemon, in_daemon) = FussySpace::new("daemon", Spaces::DAEMON, wishes);
    let (app, in_app) = FussySpace::new("app", Spaces::APP, Wishes::default());
    (vec![Box::new(daemon), Box::new(app)], vec![in_daemon, in_app])
}

fn designed(request: &str, spaces: &[Box<dyn Space>]) -> Design {
    let text = request::parse(request).unwrap();
    design(&text, &crate::kinds::registry(), spaces).unwrap()
}

const REQUEST: &str = "pcap x | port | { |80 http | files out + |! count }";

#[test]
fn every_step_that_fails_leaves_nothing() {
    let (mut all, contents) = spaces(Wishes::default());
    let design = designed(REQUEST, &all);
    carry_out(design, &mut all).unwrap();
    let steps = contents[0].lock().unwrap().steps;
    assert!(steps > 8, "the daemon takes part: {steps} steps");
    for step in 0..steps {
        let (mut all, contents) = spaces(Wishes { fails_at: Some(step), ..Wishes::default() });
        let design = designed(REQUEST, &all);
        let trouble = carry_out(design, &mut all).expect_err("a step fails");
        let transaction::Trouble::System(text) = trouble else { panic!("{trouble:?}") };
        assert_eq!(text, format!("daemon fails at step {step}"));
        for space in &contents {
            assert!(space.lock().unwrap().is_empty(), "step {step} left {:?}", space.lock().unwrap());
        }
    }
}

#[test]
fn a_space_that_refuses_is_left_out_and_those_above_follow() {
    let (mut all, contents) = spaces(Wishes { refuses: Some("port"), ..Wishes::default() });
    let placed = designed(REQUEST, &all);
    assert_eq!(placed.plan.nodes[1].space, "daemon");
    let carried = carry_out(placed, &mut all).unwrap();
    let spaces: Vec<_> = carried.plan.nodes.iter().map(|node| (node.label.as_str(), node.space.as_str())).collect();
    assert_eq!(spaces[..2], [("pcap x", "daemon"), ("port", "app")]);
    assert!(spaces[2..].iter().all(|(_, space)| *space == "app"), "never below its upstream: {spaces:?}");
    assert!(carried.sites[1].why.contains("daemon: refused when asked to prepare it"));
    assert_eq!(contents[0].lock().unwrap().active.len(), 1);
    assert_eq!(contents[1].lock().unwrap().active.len(), carried.plan.nodes.len() - 1);
}

#[test]
fn sinks_are_active_before_sources() {
    let (mut all, contents) = spaces(Wishes::default());
    let design = designed("pcap x | port | files out", &all);
    let design = carry_out(design, &mut all).unwrap();
    let log = |space: usize| contents[space].lock().unwrap().log.clone();
    assert_eq!(log(0)[log(0).len() - 2..], ["activate 1", "activate 0"]);
    assert_eq!(log(1), ["prepare files out", "connect 1 2", "activate 2"]);
    transaction::take_back(&design, &mut all);
    assert!(contents.iter().all(|space| space.lock().unwrap().is_empty()));
}
