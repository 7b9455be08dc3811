//! From a request's text to a plan: inserted, merged, rewritten, placed and refused filters.

use crate::kinds::design;
use control::{Design, explain};
use filter::Spaces;
use testkit::{FussySpace, Refusals};

fn app() -> FussySpace {
    FussySpace::new("app", Spaces::APP, Refusals::default()).0
}

fn plan(request: &str) -> Result<Design, String> {
    plan_in(request, &[app()])
}

fn plan_in(request: &str, spaces: &[FussySpace]) -> Result<Design, String> {
    let registry = crate::kinds::registry();
    let text = request::parse(request).map_err(|wrong| wrong.render(request, "request"))?;
    let text = request::expand(&text, &Default::default(), &|name| registry.find(name).is_some())
        .map_err(|wrong| wrong.render(request, "request"))?;
    design(&text, &registry, spaces).map_err(|wrong| wrong.render(request, "request"))
}

/// The plan, one line for each node: its label, then the targets of its edges.
fn shape(design: &Design) -> Vec<String> {
    let node = |node: &engine::Node| {
        let edges = node.edges.iter().map(|edge| {
            let rejected = if edge.rejected { "|! " } else { "" };
            let select = edge.select.as_ref().map_or(String::new(), |select| format!("|{select} "));
            format!("{rejected}{select}{}", design.plan.nodes[edge.to.index()].label)
        });
        let edges = edges.collect::<Vec<_>>().join(", ");
        if edges.is_empty() { node.label.clone() } else { format!("{} -> {edges}", node.label) }
    };
    design.plan.nodes.iter().map(node).collect()
}

fn check(request: &str, expected: &[&str]) {
    let design = plan(request).unwrap_or_else(|wrong| panic!("{request}\n{wrong}"));
    assert_eq!(shape(&design), expected, "{request}");
    // Topological order: every edge leads forward.
    for (index, node) in design.plan.nodes.iter().enumerate() {
        assert!(node.edges.iter().all(|edge| edge.to.index() > index), "{request}");
    }
}

#[test]
fn what_a_kind_wants_is_inserted() {
    check("pcap x | http | files out", &["pcap x -> tcp", "tcp -> http", "http -> files out", "files out"]);
    check("pcap x | tcp | http | files out", &["pcap x -> tcp", "tcp -> http", "http -> files out", "files out"]);
    check("pcap x | dns | json", &["pcap x -> udp, tcp", "udp -> dns", "tcp -> dns", "dns -> json", "json"]);
}

#[test]
fn what_is_to_stand_before_a_kind_is_put_in_once() {
    check("pcap x | sctp | files out", &["pcap x -> decap", "decap -> sctp", "sctp -> files out", "files out"]);
    // Behind selectors, not before them. Not if it is there already, on each path. Once for two that begin alike.
    check(
        "pcap x | ip | sctp | files a",
        &["pcap x -> ip", "ip -> decap", "decap -> sctp", "sctp -> files a", "files a"],
    );
    check(
        "pcap x | decap | ip | sctp | files a",
        &["pcap x -> decap", "decap -> ip", "ip -> sctp", "sctp -> files a", "files a"],
    );
    check(
        "pcap x | { sctp | files a + sctp | files b }",
        &["pcap x -> decap", "decap -> sctp", "sctp -> files a, files b", "files a", "files b"],
    );
    check(
        "pcap x | { decap + ip } | sctp name=s | files a",
        &[
            "pcap x -> decap, ip",
            "decap -> sctp name=s",
            "ip -> decap",
            "decap -> sctp name=s",
            "sctp name=s -> files a",
            "files a",
        ],
    );
    // The rejected blocks came through it.
    check(
        "pcap x | sctp |! sctp | files a",
        &["pcap x -> decap", "decap -> sctp", "sctp -> |! sctp", "sctp -> files a", "files a"],
    );
    check(
        "pcap x | port |7 sctp | files a",
        &["pcap x -> port", "port -> |7 decap", "decap -> sctp", "sctp -> files a", "files a"],
    );
    check("set decap=no; pcap x | sctp | files a", &["pcap x -> sctp", "sctp -> files a", "files a"]);
    check(
        "set decap=no; pcap x | decap | sctp | files a",
        &["pcap x -> decap", "decap -> sctp", "sctp -> files a", "files a"],
    );
}

/// Many forks that meet again: looking back must not follow each path.
#[test]
fn a_plan_of_many_ways_is_looked_through_in_no_time() {
    let forks = "{ ip + not ip } | ".repeat(40);
    plan(&format!("pcap x | {forks} sctp | files out")).unwrap();
}

#[test]
fn keys_that_begin_alike_are_values_of_one_parameter() {
    let request = "pcap x | decap policy.10.0.0.0/8=windows policy.10.1.0.0/16=\"a b\" | inspect";
    let label = "decap policy.10.0.0.0/8=windows policy.10.1.0.0/16=\"a b\"";
    check(request, &[&format!("pcap x -> {label}"), &format!("{label} -> inspect"), "inspect"]);
    for wrong in ["policy.=a", "polcy.10.0.0.0/8=a"] {
        let error = plan(&format!("pcap x | decap {wrong}")).unwrap_err();
        assert!(error.contains("has no parameter") && error.contains("it knows: policy.NAME"), "{error}");
    }
}

#[test]
fn an_end_without_a_sink_gets_one() {
    check("pcap x | count", &["pcap x -> count", "count -> json", "json"]);
    check("pcap x", &["pcap x -> inspect", "inspect"]);
    check("pcap x | http", &["pcap x -> tcp", "tcp -> http", "http -> json", "json"]);
    check("pcap x | udp", &["pcap x -> udp", "udp -> inspect", "inspect"]);
}

#[test]
fn frames_of_a_source_with_a_sink_of_its_own_go_back_by_that() {
    check("bridge a b", &["bridge a b -> bridge a b", "bridge a b"]);
    check("bridge a b | ip", &["bridge a b -> ip", "ip -> bridge a b", "bridge a b"]);
    check("bridge a b buffer=1M |0 bridge", &["bridge a b buffer=1M -> |0 bridge a b", "bridge a b"]);
    check(
        "bridge a b | { bridge + tcp | count }",
        &["bridge a b -> bridge a b, tcp", "bridge a b", "tcp -> count", "count -> json", "json"],
    );
    // The frames that `ips` passes by rejecting them go back; its records go to `json`.
    let whole = ["bridge a b -> ips", "ips -> json, |! bridge a b", "json", "bridge a b"];
    check("bridge a b | ips", &whole);
    check("bridge a b | ips | json", &whole);
    check("pcap x | ips", &["pcap x -> ips", "ips -> json, |! inspect", "json", "inspect"]);
    check(
        "bridge a b | ips |! ip",
        &["bridge a b -> ips", "ips -> |! ip, json", "ip -> bridge a b", "json", "bridge a b"],
    );
    for (request, wrong) in [
        ("bridge a b | count", "nothing of `bridge a b` goes on: no path leads to the sink `bridge`"),
        ("bridge a b | tcp | files out", "to forward all and look at it beside: bridge a b | { bridge + ... }"),
    ] {
        let error = plan(request).unwrap_err();
        assert!(error.contains(wrong), "{error}");
    }
    // With two sources it is not clear which of them is meant.
    check(
        "{ bridge a b + bridge c d } | bridge a b",
        &["bridge a b -> bridge a b", "bridge c d -> bridge a b", "bridge a b"],
    );
}

#[test]
fn what_begins_alike_runs_once() {
    check(
        "pcap x | count; pcap x | ip | count",
        &["pcap x -> count, ip", "count -> json", "ip -> count", "count -> json", "json", "json"],
    );
    // Two sinks stay two, and so do two different files; a stream filter that was inserted twice becomes one.
    check(
        "pcap x | { http | files a + http | files b }",
        &["pcap x -> tcp", "tcp -> http", "http -> files a, files b", "files a", "files b"],
    );
    check("pcap x | inspect; pcap x | inspect", &["pcap x -> inspect, inspect", "inspect", "inspect"]);
}

#[test]
fn selectors_on_edges_and_branches() {
    check("pcap x | port |22 inspect", &["pcap x -> port", "port -> |22 inspect", "inspect"]);
    check(
        "pcap x | port | { |22 count + |!1:1023 inspect }",
        &["pcap x -> port", "port -> |22 count, |!1:1023 inspect", "count -> json", "inspect", "json"],
    );
    let design = plan("pcap x | vlan | { |1 inspect + |5:9 inspect + |! files rest }").unwrap();
    let rest = design.plan.nodes[1].edges[2].select.clone().unwrap();
    let accepts = [0, 1, 4, 5, 9, 10].map(|class| rest.accepts(base::id::Class(class)));
    assert_eq!(accepts, [true, false, true, false, false, true]);
}

#[test]
fn what_is_rejected_goes_along_edges_of_its_own() {
    // A class selector, if an edge beside it selects by number.
    check(
        "pcap x | port | { |22 count + |! inspect }",
        &["pcap x -> port", "port -> |22 count, |! inspect", "count -> json", "inspect", "json"],
    );
    let design = plan("pcap x | port | { |22 count + |! inspect }").unwrap();
    assert!(design.plan.nodes.iter().all(|node| node.edges.iter().all(|edge| !edge.rejected)));
    // Else the filter's rejected blocks: of the type that it takes, with the filters that this type needs, selected by
    // the class before it.
    check("pcap x | tcp |! files rest", &["pcap x -> tcp", "tcp -> |! files rest", "files rest"]);
    check(
        "pcap x | tcp name=t | count; @t |! http | files out",
        &[
            "pcap x -> tcp name=t",
            "tcp name=t -> count, |! tcp",
            "count -> json",
            "tcp -> http",
            "http -> files out",
            "files out",
            "json",
        ],
    );
    check(
        "pcap x | vlan | tcp |! { |1 count + |! inspect }",
        &["pcap x -> vlan", "vlan -> tcp", "tcp -> |! |1 count, |! |! inspect", "count -> json", "inspect", "json"],
    );
    let design = plan("pcap x | vlan | tcp |! { |1 count + |! inspect }").unwrap();
    assert_eq!(design.plan.nodes[2].input, design.plan.nodes[4].input, "{:?}", shape(&design));
    let rest = design.plan.nodes[2].edges[1].select.clone().unwrap();
    assert!(!rest.accepts(base::id::Class(1)) && rest.accepts(base::id::Class(2)));
    assert!(explain::tree(&design).contains("├─|! |1 count") && explain::tree(&design).contains("└─|! |! inspect"));
    // Equal beginnings run once, for passed and for rejected blocks.
    check(
        "pcap x | ip | count; pcap x | ip |! inspect",
        &["pcap x -> ip", "ip -> count, |! inspect", "count -> json", "inspect", "json"],
    );
    // A selection with wanted rejects stays whole: no single part rejects all blocks that the whole rejects.
    check(
        "pcap x | ip and bpf a | { count + |! inspect }",
        &[
            "pcap x -> ip and bpf a",
            "ip",
            "bpf a",
            "ip and bpf a -> count, |! inspect",
            "count -> json",
            "inspect",
            "json",
        ],
    );
}

#[test]
fn a_selector_that_only_rejects_is_turned_round() {
    let not = |request: &str| plan(request).map(|design| shape(&design)).unwrap();
    for (rejects, opposite) in [
        ("pcap x | ip |! count", "pcap x | not ip | count"),
        ("(pcap,file=x) > (ip) !> (count)", "(pcap,file=x) > not (ip) > (count)"),
        ("pcap x | not port 80 |! count", "pcap x | not not port 80 | count"),
        ("pcap x | ip or port 80 |! { count + inspect }", "pcap x | not { ip or port 80 } | { count + inspect }"),
        ("pcap x | vlan | port |! { |1 count + |2 inspect }", "pcap x | vlan | not port | { |1 count + |2 inspect }"),
    ] {
        assert_eq!(not(rejects), not(opposite), "{rejects}");
    }
    let design = plan("pcap x | bpf a |! count").unwrap();
    assert!(explain::tree(&design).contains("written as: bpf a |!"), "{}", explain::tree(&design));
    // Not if the passed blocks are wanted, too, and not for a filter that is no selector.
    check("pcap x | head |! count", &["pcap x -> head", "head -> |! count", "count -> json", "json"]);
}

#[test]
fn booleans_take_their_simplest_form() {
    check("pcap x | not not ip | inspect", &["pcap x -> ip", "ip -> inspect", "inspect"]);
    check("pcap x | ip and ip | inspect", &["pcap x -> ip", "ip -> ip", "ip -> inspect", "inspect"]);
    check(
        "pcap x | bpf a and bpf b and bpf c | inspect",
        &["pcap x -> bpf \"((a) and (b)) and (c)\"", "bpf \"((a) and (b)) and (c)\" -> inspect", "inspect"],
    );
    check(
        "pcap x | ip or port 80 | inspect",
        &["pcap x -> ip or port 80", "ip", "port 80", "ip or port 80 -> inspect", "inspect"],
    );
}

#[test]
fn rewriting_changes_neither_what_passes_nor_classes() {
    // A program that reads behind a frame's end rejects the frame: `or` and `not` stay outside of it.
    check(
        "pcap x | bpf a or bpf b | inspect",
        &["pcap x -> bpf a or bpf b", "bpf a", "bpf b", "bpf a or bpf b -> inspect", "inspect"],
    );
    check("pcap x | not bpf a | inspect", &["pcap x -> not bpf a", "bpf a", "not bpf a -> inspect", "inspect"]);
    // The selector after a selection refers to the class set before the selection, even if that is of one filter.
    let design = plan("pcap x | vlan | not not port 53 |17 count").unwrap();
    let choice = design.plan.nodes.iter().find_map(|node| match &node.task {
        engine::Task::Choose(choice) => Some(choice.clone()),
        engine::Task::Filter { .. } => None,
    });
    assert!(matches!(choice, Some(engine::Choice::KeepClass(_))), "{choice:?}");
}

#[test]
fn named_nodes_join_paths() {
    check(
        "pcap x name=src | ip | count name=sum; @src | vlan | @sum",
        &[
            "pcap x name=src -> ip, vlan",
            "ip -> count name=sum",
            "vlan -> count name=sum",
            "count name=sum -> json",
            "json",
        ],
    );
}

#[test]
fn the_lowest_space_that_may_run_it_wins_and_blocks_never_go_down() {
    let spaces: Vec<FussySpace> = vec![
        app(),
        FussySpace::new("kernel", Spaces::KERNEL, Refusals::default()).0,
        FussySpace::new("daemon", Spaces::DAEMON, Refusals::default()).0,
        FussySpace::new("parser", Spaces::PARSER, Refusals::default()).0.at_cost(9),
        FussySpace::new("parser-2", Spaces::PARSER, Refusals::default()).0,
    ];
    let design = plan_in("pcap x | bpf tcp | http | ip | files out", &spaces);
    // http gives messages, which ip does not take: the error names both.
    assert!(design.unwrap_err().contains("`ip` takes frame, but `http` gives message"));
    let design = plan_in("pcap x | bpf a | count", &spaces).unwrap();
    let spaces_of = |design: &Design| design.plan.nodes.iter().map(|node| node.space.clone()).collect::<Vec<_>>();
    assert_eq!(
        spaces_of(&design),
        ["daemon", "daemon", "daemon", "app"],
        "bpf may run in the kernel, but pcap may not"
    );
    let design = plan_in("pcap x | http | head | files out", &spaces).unwrap();
    assert_eq!(
        spaces_of(&design),
        ["daemon", "parser-2", "parser-2", "parser-2", "app"],
        "payload is not parsed in the daemon"
    );
}

#[test]
fn a_space_without_an_implementation_is_passed_over() {
    let spaces: Vec<FussySpace> = vec![
        app(),
        FussySpace::new("daemon", Spaces::DAEMON, Refusals { offers_nothing: true, ..Refusals::default() }).0,
    ];
    let design = plan_in("pcap x | count", &spaces).unwrap();
    assert!(design.plan.nodes.iter().all(|node| node.space == "app"));
    assert!(explain::tree(&design).contains("daemon: has no implementation of `pcap`"), "{}", explain::tree(&design));
    let none: Vec<FussySpace> = vec![FussySpace::new("daemon", Spaces::DAEMON, Refusals::default()).0];
    assert!(plan_in("pcap x | files out", &none).unwrap_err().contains("no space here can run `files out`"));
}

#[test]
fn errors_point_at_the_place() {
    let rows = [
        ("pcap x | htttp | files o", "no filter `htttp`; did you mean `http`?", 9, 14),
        ("pcap x | parquet o", "no filter `parquet` in this program", 9, 16),
        ("pcap x | tcp + udp", "`udp` has no source", 15, 18),
        ("tcp | count", "`tcp` has no source", 0, 3),
        ("pcap x | count | pcap y", "`pcap` is a source and takes no input", 17, 23),
        ("pcap x | files o | count", "nothing comes out of `files`", 19, 24),
        ("pcap x | count | tcp", "`tcp` takes frame or packet, but `count` gives record", 17, 20),
        ("pcap x | tcp | ip", "`ip` takes frame, but `tcp` gives bytes", 15, 17),
        ("pcap x | head or ip | count", "`head` is not a selector", 9, 13),
        ("pcap x | ip |22 count", "nothing before this edge sets a class", 12, 15),
        ("pcap x | {port + vlan} | head |22 count", "the paths before this edge set different classes", 30, 33),
        ("pcap x | vlan |! { |1 count }", "nothing before this edge sets a class", 19, 21),
        ("pcap x | vlan | tcp |! { |! count }", "`|!` takes what no other edge takes, and there is none", 25, 27),
        ("pcap x |! count", "`pcap` rejects nothing: it is a source", 7, 9),
        ("pcap x | count |! json", "`count` rejects nothing: it takes everything", 15, 17),
        ("pcap x | tcp |! json", "`json` takes message or record, but `tcp` rejects frame", 16, 20),
        ("pcap x | http |! ip", "`ip` takes frame, but `http` rejects bytes", 17, 19),
        ("pcap x | port nmber=5", "`port` has no parameter `nmber`; did you mean `number`?", 14, 19),
        ("pcap x | port http", "`http` is not a number such as 12, 5k or 2M", 14, 18),
        ("pcap x follow=maybe", "`maybe` is neither yes nor no", 14, 19),
        ("pcap x | bpf tcp port 80", "`port` is a second plain value", 17, 21),
        ("pcap x | count 5", "`count` takes no plain value", 15, 16),
        ("pcap x | files", "`files` needs dir", 9, 14),
        ("pcap x | ip name=a | @b", "no node is named `b`", 21, 23),
        ("pcap x | ip name=a | vlan | @a", "the request leads back to itself", 9, 18),
        ("pcap x | ip name=a | ip name=a", "two nodes are named `a`", 29, 30),
        ("pcap x | not ip name=a | @a | count", "`a` names an operand of a selection", 21, 22),
        (
            "{ pcap x | port + pcap y | vlan } | not { |80 ip } | count",
            "a selector in this selection has no class to look at",
            40,
            50,
        ),
        ("pcap x | { files o + files ./a/../o }", "`./a/../o` is written by `files` already", 27, 35),
        ("pcap x | files ./x", "`./x` is read by `pcap`", 15, 18),
        ("pcap x | bpf 'tcp port' | count", "values are quoted with `\"`, not with `'`", 13, 17),
        ("pcap x | files \"\"", "the path is empty", 15, 17),
        ("set wrkers=2; pcap x", "`set` has no parameter `wrkers`; did you mean `workers`?", 4, 10),
        ("", "the request is empty", 0, 0),
    ];
    for (source, message, start, end) in rows {
        let registry = crate::kinds::registry();
        let outcome = request::parse(source)
            .and_then(|text| request::expand(&text, &Default::default(), &|name| registry.find(name).is_some()))
            .and_then(|text| design(&text, &registry, &[app()]).map(|_| ()));
        let wrong = outcome.expect_err(source);
        assert_eq!((wrong.message.as_str(), wrong.span.start, wrong.span.end), (message, start, end), "{source}");
    }
}

#[test]
fn every_way_to_write_a_request_gives_the_same_plan() {
    let pipe = plan("pcap x | port | { |80 http | files out + |! count }").unwrap();
    let paper = plan("(pcap,file=x) > (port) > ( 80> (http) > (files,dir=out) | !> (count) )").unwrap();
    let named = plan("let web = http | files out; pcap x | port | { |80 web + |! count }").unwrap();
    assert_eq!(shape(&pipe), shape(&paper));
    assert_eq!(shape(&pipe), shape(&named));
}
