//! The formatter's layout: comments stay where they are, long items break before their edges.

use request::{parse, print, print_paper};

fn check(source: &str, expected: &str) {
    let text = parse(source).unwrap_or_else(|error| panic!("{}", error.render(source, "request")));
    let printed = print(&text);
    assert_eq!(printed, expected, "{source}");
    let again = parse(&printed).unwrap_or_else(|error| panic!("{}", error.render(&printed, "printed")));
    assert_eq!(again, text, "{printed}");
    assert_eq!(print(&again), printed, "printed again:\n{printed}");
    // Both notations have the same comments, in the same order.
    let paper = print_paper(&text, &|_| None);
    let from_paper = parse(&paper).unwrap_or_else(|error| panic!("{}", error.render(&paper, "paper")));
    assert_eq!(from_paper, text, "{paper}");
    let comments =
        |text: &request::Text| text.layout.comments.iter().map(|comment| comment.text.clone()).collect::<Vec<String>>();
    assert_eq!(comments(&from_paper), comments(&text), "{paper}");
    assert_eq!(comments(&again), comments(&text), "{printed}");
}

#[test]
fn comments_between_items() {
    check(
        "#!/usr/bin/env streamline\n\n\n# settings\nset workers=2; # two\n\n\n# the web\nlet web=tcp|http;\npcap a|web # all of it\n# the end\n",
        "#!/usr/bin/env streamline\n\n# settings\nset workers=2;  # two\n\n# the web\nlet web = tcp | http;\npcap a | web  # all of it\n# the end\n",
    );
    check("set cpus=0,2-3;a", "set cpus=\"0,2-3\";\na\n");
    check("# only this", "# only this\n");
    check("\n\na;\n\n\nb\n\n", "a;\n\nb\n");
    check("a; b", "a;\nb\n");
    check("a # one\n; # two\nb", "a;  # one\n# two\nb\n");
    check("; # first\na", "# first\na\n");
}

#[test]
fn comments_inside_items_break_them() {
    check(
        "pcap a # the source\n| tcp # streams\n# and then\n| http",
        "pcap a  # the source\n  | tcp  # streams\n  # and then\n  | http\n",
    );
    // An edge at the end of a line moves to the next line; the comment stays with its filter.
    check("pcap a | # the source\ntcp | http", "pcap a  # the source\n  | tcp\n  | http\n");
    // A comment behind the last filter, or between its parameters, does not break the item.
    check("pcap a | files # where to\ndir=out", "pcap a | files dir=out  # where to\n");
    check(
        "pcap a | port | { # by port\n|22 ssh # remote\n# plain\n+ |80 http\n# last\n} | count",
        "pcap a\n  | port\n  | {  # by port\n    |22 ssh  # remote\n    # plain\n    + |80 http\n    # last\n  }\n  | count\n",
    );
    check("let x = # why\n a | b;x", "let x =  # why\n  a | b;\nx\n");
    check("let x = a # one\n| b;x", "let x = a  # one\n  | b;\nx\n");
    check("a or # one\nb and # two\nc", "a  # one\n  or b  # two\n    and c\n");
    check("a | not # one\n{ b }", "a  # one\n  | not { b }\n");
    check("set a=1 # one\nb=2; x", "set a=1 b=2;  # one\nx\n");
}

#[test]
fn long_items_break_before_their_edges() {
    let bpf = "bpf \"tcp port 80 and host 192.0.2.1 and not host 192.0.2.2\"";
    check(
        &format!("pcap trace.pcap | {bpf} | tcp | http | files dir=out"),
        &format!("pcap trace.pcap\n  | {bpf}\n  | tcp\n  | http\n  | files dir=out\n"),
    );
    check(
        &format!("pcap trace.pcap | port | {{ |22 {bpf} | count + |80 tcp | http | files dir=web }} | count"),
        &format!(
            "pcap trace.pcap\n  | port\n  | {{\n    |22 {bpf} | count\n    + |80 tcp | http | files dir=web\n  }}\n  | count\n"
        ),
    );
    check(
        &format!("let both = pcap a | {bpf} | tcp + pcap b | udp | dns | files dir=dns; both"),
        &format!("let both =\n  pcap a | {bpf} | tcp\n  + pcap b | udp | dns | files dir=dns;\nboth\n"),
    );
    check(
        &format!("pcap a | {bpf} or not {{ {bpf} | count }}"),
        &format!("pcap a\n  | {bpf}\n    or not {{ {bpf} | count }}\n"),
    );
    let wide = "w".repeat(120);
    check(&format!("pcap {wide}"), &format!("pcap {wide}\n"));
    check(&format!("{{ pcap {wide} }} | count"), &format!("{{\n  pcap {wide}\n}}\n  | count\n"));
}
