//! A design is carried out completely or not at all: each step is made to fail in turn.

use crate::kinds::{self, design, placed};
use control::Design;
use control::difference::Difference;
use control::place::Refused;
use control::transaction::{CarryError, Failed};
use filter::Spaces;
use std::sync::{Arc, Mutex};
use testkit::space::Contents;
use testkit::{FussySpace, Refusals};

type Watched = (Vec<FussySpace>, Vec<Arc<Mutex<Contents>>>);

fn spaces(all_asked: Refusals) -> Watched {
    let (daemon, in_daemon) = FussySpace::new("daemon", Spaces::DAEMON, all_asked);
    let (app, in_app) = FussySpace::new("app", Spaces::APP, Refusals::default());
    (vec![daemon, app], vec![in_daemon, in_app])
}

fn designed(request: &str, spaces: &[FussySpace]) -> Design {
    let text = request::parse(request).unwrap();
    design(&text, &crate::kinds::registry(), spaces).unwrap()
}

#[derive(Debug)]
struct Change {
    design: Design,
    kept: Vec<Option<engine::NodeId>>,
    restarts: Vec<bool>,
}

fn carry_out(design: Design, spaces: &[FussySpace]) -> Result<Design, CarryError> {
    carry_out_beside(design, None, spaces).map(|change| change.design)
}

fn carry_out_beside(design: Design, running: Option<&Design>, spaces: &[FussySpace]) -> Result<Change, CarryError> {
    match kinds::carry_out(&design, running, spaces) {
        Ok(Difference { kept, restarts }) => Ok(Change { design, kept, restarts }),
        Err(Failed::Error(error)) => Err(error),
        Err(Failed::Refused(node, why)) => panic!("{node:?} is refused: {why}"),
    }
}

const REQUEST: &str = "pcap x | port | { |80 http | files out + |! count }";

#[test]
fn every_step_that_fails_leaves_nothing() {
    let (all, contents) = spaces(Refusals::default());
    let design = designed(REQUEST, &all);
    carry_out(design, &all).unwrap();
    let steps = contents[0].lock().unwrap().steps;
    assert!(steps > 8, "the daemon takes part: {steps} steps");
    for step in 0..steps {
        let (all, contents) = spaces(Refusals { fails_at: Some(step), ..Refusals::default() });
        let design = designed(REQUEST, &all);
        let error = carry_out(design, &all).expect_err("a step fails");
        let CarryError::System(text) = error else { panic!("{error:?}") };
        assert_eq!(text, format!("daemon fails at step {step}"));
        for space in &contents {
            assert!(space.lock().unwrap().is_empty(), "step {step} left {:?}", space.lock().unwrap());
        }
    }
}

#[test]
fn a_space_that_refuses_is_left_out_and_those_above_follow() {
    let (all, contents) = spaces(Refusals { refuses: Some("port"), ..Refusals::default() });
    let first = designed(REQUEST, &all);
    assert_eq!(first.plan.nodes[1].space, "daemon");
    let Err(Failed::Refused(node, why)) = kinds::carry_out(&first, None, &all) else {
        panic!("the daemon refuses to prepare it");
    };
    assert!(contents.iter().all(|space| space.lock().unwrap().is_empty()));
    let refused = Refused([((first.sites[node.index()].vertex, "daemon".into()), why)].into());
    let carried = carry_out(placed(first.graph, &all, &refused).unwrap(), &all).unwrap();
    let spaces: Vec<_> = carried.plan.nodes.iter().map(|node| (node.label.as_str(), node.space.as_str())).collect();
    assert_eq!(spaces[..2], [("pcap x", "daemon"), ("port", "app")]);
    assert!(spaces[2..].iter().all(|(_, space)| *space == "app"), "never below its upstream: {spaces:?}");
    assert!(carried.sites[1].why.contains("daemon: refused when asked to prepare it"));
    assert_eq!(contents[0].lock().unwrap().active.len(), 1);
    assert_eq!(contents[1].lock().unwrap().active.len(), carried.plan.nodes.len() - 1);
}

#[test]
fn sinks_are_active_before_sources() {
    let (all, contents) = spaces(Refusals::default());
    let design = designed("pcap x | port | files out", &all);
    carry_out(design, &all).unwrap();
    let log = |space: usize| contents[space].lock().unwrap().log.clone();
    assert_eq!(log(0)[log(0).len() - 2..], ["activate 1", "activate 0"]);
    assert_eq!(log(1), ["prepare files out", "connect 1 2", "activate 2"]);
}

/// The labels of nodes that go on, with their numbers in the running plan.
fn kept(change: &Change) -> Vec<(&str, u32)> {
    let nodes = change.design.plan.nodes.iter().zip(&change.kept);
    nodes.filter_map(|(node, running)| Some((node.label.as_str(), running.as_ref()?.0))).collect()
}

fn changed(from: &str, to: &str) -> (Change, Vec<Arc<Mutex<Contents>>>) {
    let (all, _) = spaces(Refusals::default());
    let running = carry_out(designed(from, &all), &all).unwrap();
    let (all, contents) = spaces(Refusals::default());
    let wanted = designed(to, &all);
    (carry_out_beside(wanted, Some(&running), &all).unwrap(), contents)
}

#[test]
fn what_both_plans_begin_with_goes_on() {
    let rows: [(&str, &str, &[&str]); 9] = [
        ("pcap x | port | files out", "pcap x | port | files out", &["pcap x", "port", "files out"]),
        ("pcap x | port | files out", "pcap x | port | count | json", &["pcap x", "port"]),
        ("pcap x | port | files out", "pcap y | port | files b", &[]),
        ("pcap x | port | count | json", "pcap x | count | json", &["pcap x"]),
        // Another class goes along the edge.
        ("pcap x | port |80 http | files a", "pcap x | port |81 http | files b", &["pcap x", "port"]),
        (
            "pcap x | port | { |80 http | files a + |53 count | json }",
            "pcap x | port |80 http | files b",
            &["pcap x", "port", "tcp", "http"],
        ),
        (
            "pcap x | { count | json + port | files a }",
            "pcap x | { port | files a + count | json }",
            &["pcap x", "port", "count", "json", "files a"],
        ),
        // Operands of a selection go on with it.
        (
            "pcap x | not { ip or vlan } | count | json",
            "pcap x | not { ip or vlan } | files a",
            &["pcap x", "ip", "vlan"],
        ),
        ("pcap x | not { ip or vlan } | files a", "pcap x | not { vlan or ip } | files b", &["pcap x"]),
    ];
    for (from, to, expected) in rows {
        let (change, contents) = changed(from, to);
        let mut found: Vec<&str> = kept(&change).into_iter().map(|(label, _)| label).collect();
        let all = found.len();
        found.retain(|label| !label.starts_with("not "));
        found.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected, "{from} > {to}");
        let prepared: usize = contents.iter().map(|space| space.lock().unwrap().prepared.len()).sum();
        assert_eq!(prepared + all, change.design.plan.nodes.len(), "the rest begins");
    }
}

#[test]
fn every_step_of_a_change_that_fails_leaves_the_running_plan_and_nothing_else() {
    let (runs, in_running) = spaces(Refusals::default());
    let running = carry_out(designed(REQUEST, &runs), &runs).unwrap();
    let as_it_was = |space: &Arc<Mutex<Contents>>| format!("{:?}", space.lock().unwrap());
    let before: Vec<String> = in_running.iter().map(as_it_was).collect();
    const WANTED: &str = "pcap x | port | { |80 http | files other + |! count + |53 head | count }";
    let (all, contents) = spaces(Refusals::default());
    let design = designed(WANTED, &all);
    let change = carry_out_beside(design, Some(&running), &all).unwrap();
    assert!(kept(&change).contains(&("port", 1)), "{:?}", kept(&change));
    let steps = contents[0].lock().unwrap().steps;
    assert!(steps > 4, "the daemon takes part: {steps} steps");
    for step in 0..steps {
        let (all, contents) = spaces(Refusals { fails_at: Some(step), ..Refusals::default() });
        let design = designed(WANTED, &all);
        let error = carry_out_beside(design, Some(&running), &all).expect_err("a step fails");
        assert!(matches!(error, CarryError::System(text) if text == format!("daemon fails at step {step}")));
        for space in &contents {
            assert!(space.lock().unwrap().is_empty(), "step {step} left {:?}", space.lock().unwrap());
        }
        assert_eq!(in_running.iter().map(as_it_was).collect::<Vec<_>>(), before, "step {step}");
    }
}

#[test]
fn sinks_of_a_change_are_active_before_what_is_above_them_and_what_goes_on_is_left_alone() {
    let (_, contents) = changed("pcap x | port | files out", "pcap x | port | { files out + count | json }");
    let log = |space: usize| contents[space].lock().unwrap().log.clone();
    assert_eq!(log(0)[..2], ["keep 0 as 0", "keep 1 as 1"]);
    assert!(!log(0).iter().any(|step| step == "activate 0" || step == "activate 1"), "{:?}", log(0));
}

#[test]
fn sinks_go_on_where_what_leads_to_them_changes() {
    let check = |from: &str, to: &str, expected: &[(&str, bool)]| {
        let (change, _) = changed(from, to);
        let all = kept(&change).into_iter().map(|(label, _)| label);
        let nodes = || change.design.plan.nodes.iter().zip(&change.kept).zip(&change.restarts);
        let restarts: Vec<bool> = nodes().filter(|((_, kept), _)| kept.is_some()).map(|(_, one)| *one).collect();
        assert_eq!(all.zip(restarts).collect::<Vec<_>>(), expected, "{from} > {to}");
        assert!(nodes().all(|((_, kept), restarts)| kept.is_some() || !restarts));
    };
    check(
        "pcap x | port | files out",
        "pcap x | port | files out",
        &[("pcap x", false), ("port", false), ("files out", false)],
    );
    check("pcap x | port | files out", "pcap x | files out", &[("pcap x", false), ("files out", true)]);
    check("pcap x | files out", "pcap y | files out", &[("files out", true)]);
    check("pcap x | port | http | files out", "pcap y | port | http | files out", &[("files out", true)]);
    let both = "pcap x | { port + vlan } | files out";
    check(both, "pcap x | port | files out", &[("pcap x", false), ("port", false), ("files out", true)]);
}

#[test]
fn what_is_still_written_is_not_written_anew() {
    let rows = [
        ("pcap x | http | files out", "pcap x | files out", "`files` got message there, not frame"),
        ("pcap x | files out", "pcap x | files out hash=no", "`files` has other parameters there: `files out`"),
    ];
    for (from, to, why) in rows {
        let (runs, _) = spaces(Refusals::default());
        let running = carry_out(designed(from, &runs), &runs).unwrap();
        let (all, contents) = spaces(Refusals::default());
        let error = carry_out_beside(designed(to, &all), Some(&running), &all);
        let CarryError::Request(diagnostic) = error.expect_err("it is written") else { panic!("{to}") };
        assert_eq!(diagnostic.message, format!("`out` is written by the request that runs, and {why}"));
        assert!(contents.iter().all(|space| space.lock().unwrap().is_empty()));
    }
}

#[test]
fn sinks_are_prepared_last() {
    let (all, contents) = spaces(Refusals::default());
    carry_out(designed("pcap x | { files out + http | count | json }", &all), &all).unwrap();
    let log = contents[1].lock().unwrap().log.clone();
    let prepared: Vec<_> = log.iter().filter(|step| step.starts_with("prepare")).map(String::as_str).collect();
    assert_eq!(prepared, ["prepare tcp", "prepare http", "prepare count", "prepare files out", "prepare json"]);
}
