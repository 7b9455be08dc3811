//! Both notations, row by row: the same tree for both, and the canonical text of each.

use request::{Item, Notation, Selector, Term, Text, parse, print, print_paper};

fn tree(source: &str) -> Text {
    parse(source).unwrap_or_else(|error| panic!("{}", error.render(source, "request")))
}

/// `pipe` and `paper` are the same tree, and each is already canonical.
fn check(pipe: &str, paper: &str) {
    let (from_pipe, from_paper) = (tree(pipe), tree(paper));
    assert_eq!(from_pipe.notation, Notation::Pipe, "{pipe}");
    assert_eq!(from_paper.notation, Notation::Paper, "{paper}");
    assert_eq!(from_pipe, from_paper, "{pipe}\n{paper}");
    assert_eq!(print(&from_paper), format!("{pipe}\n"));
    assert_eq!(print_paper(&from_pipe, &|_| None), format!("{paper}\n"));
}

#[test]
fn the_same_tree_from_both() {
    let rows: &[(&str, &str)] = &[
        ("a", "(a)"),
        ("a | b", "(a) > (b)"),
        ("a | b | c", "(a) > (b) > (c)"),
        ("a + b", "(a) | (b)"),
        ("a | b + c | d", "(a) > (b) | (c) > (d)"),
        ("{ a + b } | c", "( (a) | (b) ) > (c)"),
        ("{ a }", "( (a) )"),
        ("{ { a } }", "( ( (a) ) )"),
        ("port |22 x", "(port) 22> (x)"),
        ("port |!80 x", "(port) !80> (x)"),
        ("port |22:23 x", "(port) 22:23> (x)"),
        ("port |!1:1023 x", "(port) !1:1023> (x)"),
        ("port |! x", "(port) !> (x)"),
        ("port ||22 x", "(port) 22>> (x)"),
        ("port ||! x", "(port) !>> (x)"),
        ("a || b", "(a) >> (b)"),
        ("port | { |22 a + |80 b + |! c }", "(port) > ( 22> (a) | 80> (b) | !> (c) )"),
        ("port | { || a + ||!80 b | c }", "(port) > ( >> (a) | !80>> (b) > (c) )"),
        ("a or b", "(a) or (b)"),
        ("a or b and c or not d", "(a) or (b) and (c) or not (d)"),
        ("not not a", "not not (a)"),
        ("not { a | b } and c | d", "not ( (a) > (b) ) and (c) > (d)"),
        ("rtsp name=tag | a; @tag | b", "(rtsp,name=tag) > (a); (tag) > (b)"),
        ("pcap trace.pcap", "(pcap,trace.pcap)"),
        ("pcap trace.pcap name=p follow=yes", "(pcap,trace.pcap,name=p,follow=yes)"),
        (r#"bpf "tcp port 80""#, r#"(bpf,"tcp port 80")"#),
        (r#"bpf expr="tcp port 80""#, r#"(bpf,expr="tcp port 80")"#),
        (r#"match "GET \"\d+\" \\""#, r#"(match,"GET \"\d+\" \\")"#),
        ("qos policy.10.0.0.0/8=windows", "(qos,policy.10.0.0.0/8=windows)"),
        (r#"a "" k="""#, r#"(a,"",k="")"#),
        (r#"a "and" k="or""#, r#"(a,"and",k="or")"#),
        ("pcap $file | files dir=${dir}/out", "(pcap,$file) > (files,dir=${dir}/out)"),
    ];
    for (pipe, paper) in rows {
        check(&lines(pipe), &lines(paper));
    }
}

/// Puts each item on a line of its own, as the formatter does.
fn lines(source: &str) -> String {
    source.replace("; ", ";\n")
}

#[test]
fn items() {
    check(
        "set workers=2 latency=1ms;\nlet web = tcp | http;\npcap a | web",
        "set workers=2 latency=1ms;\nlet web = (tcp) > (http);\n(pcap,a) > (web)",
    );
    check("let web = not tcp;\nweb", "let web = not (tcp);\n(web)");
    assert_eq!(tree("set a=b").notation, Notation::Pipe);
}

#[test]
fn the_first_token_that_differs_tells_the_notation() {
    let rows: &[(&str, Notation)] = &[
        ("", Notation::Pipe),
        ("# (a)\na", Notation::Pipe),
        ("(a)", Notation::Paper),
        (";; (a)", Notation::Paper),
        ("set a=\"(\" b=2; a", Notation::Pipe),
        ("set a=1; (a)", Notation::Paper),
        ("let x = not not (a)", Notation::Paper),
        ("not (a)", Notation::Paper),
        ("not a", Notation::Pipe),
        ("{ a }", Notation::Pipe),
    ];
    for (source, notation) in rows {
        assert_eq!(tree(source).notation, *notation, "{source}");
    }
}

#[test]
fn loose_writing_is_read_and_made_canonical() {
    let rows: &[(&str, &str)] = &[
        ("", ""),
        ("  \n ; ;\n", ""),
        ("a|b||c", "a | b || c\n"),
        ("a|22 b|!80{c+d}", "a |22 b |!80 { c + d }\n"),
        ("a|007 b|5:5 c", "a |7 b |5 c\n"),
        ("{a+b}|c;;d;", "{ a + b } | c;\nd\n"),
        ("a\n\t| b\r\n\u{a0}| c", "a | b | c\n"),
        ("a k = v", "a k=v\n"),
        ("a\"b c\"", "a \"b c\"\n"),
        ("a \"b\" k=\"v\"", "a b k=v\n"),
        ("a k=v name=n", "a name=n k=v\n"),
        ("a name=\"n\"", "a name=n\n"),
        ("a k=or | b", "a k=\"or\" | b\n"),
        ("pcap \"${x}\"", "pcap $x\n"),
        ("save -", "save -\n"),
        ("size >100", "size >100\n"),
        ("a b#c", "a b#c\n"),
        ("(port)22>(x)", "port |22 x\n"),
        ("((port)>(22>(a)|!80>>not (b)))", "{ port | { |22 a + ||!80 not b } }\n"),
        ("(a)>not(b)or(c)", "a | not b or c\n"),
        ("(pcap, file = trace.pcap , k=\"v,w\")", "pcap file=trace.pcap k=\"v,w\"\n"),
        ("(bpf,expr=len>100)", "bpf expr=len>100\n"),
        ("\u{feff}a", "a\n"),
    ];
    for (source, expected) in rows {
        assert_eq!(print(&tree(source)), *expected, "{source:?}");
    }
}

#[test]
fn the_key_of_a_plain_value_can_be_written_out() {
    let key = |filter: &str| (filter == "pcap").then(|| "file".to_owned());
    let text = tree("pcap a.pcap | bpf x | pcap b file=c");
    assert_eq!(print_paper(&text, &key), "(pcap,file=a.pcap) > (bpf,x) > (pcap,b,file=c)\n");
}

#[test]
fn a_name_in_parentheses_is_a_reference_when_a_node_has_it() {
    let text = tree("(tag) > (x); (rtsp,name=tag)");
    let Item::Path(par) = &text.items[0] else { panic!("a path") };
    let terms: Vec<&Term> = par.branches[0].links.iter().map(|link| &link.term).collect();
    assert!(matches!(terms[0], Term::Ref(name) if name.text == "tag" && name.span.end == 5));
    assert!(matches!(terms[1], Term::Filter(call) if call.name.text == "x"));
}

#[test]
fn the_tree_has_the_places_of_the_text() {
    let source = "pcap t.pcap name=p || { |!80 not http + @p } and dns";
    let text = tree(source);
    let Item::Path(par) = &text.items[0] else { panic!("a path") };
    let at = |span: request::Span| &source[span.start..span.end];
    let chain = &par.branches[0];
    assert_eq!(at(par.span), source);
    let Term::Filter(pcap) = &chain.links[0].term else { panic!("a filter") };
    assert_eq!(at(pcap.span), "pcap t.pcap name=p");
    assert_eq!(pcap.label.as_ref().map(|label| at(label.span)), Some("p"));
    assert_eq!(pcap.main.first().map(|main| at(main.span)), Some("t.pcap"));
    assert_eq!(chain.links[1].edge.map(|edge| (edge.cut, at(edge.span))), Some((true, "||")));
    let Term::And(operands) = &chain.links[1].term else { panic!("an and") };
    let Term::Group(group) = &operands[0] else { panic!("a group") };
    assert_eq!(at(group.span), "{ |!80 not http + @p }");
    let lead = group.branches[0].lead.expect("an edge");
    assert_eq!(at(lead.span), "|!80");
    assert_eq!(lead.select, Some(Selector::Classes { invert: true, low: 80, high: 80 }));
    assert_eq!(at(group.branches[0].span), "|!80 not http");
    assert_eq!(at(group.branches[1].links[0].term.span()), "@p");
    assert_eq!(at(chain.links[1].term.span()), "{ |!80 not http + @p } and dns");
}
