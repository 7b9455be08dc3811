//! A source from outside the text is put before each chain that begins without one, and before no other.

use request::{FilterCall, Role, begin_with, expand, parse, print, print_paper, put_behind_sources};

const FILTERS: &[&str] = &["pcap", "tcp", "udp", "count", "ip", "port"];

fn check(source: &str, expected: &str, count: usize) {
    let text = parse(source).unwrap_or_else(|error| panic!("{}", error.render(source, "request")));
    let mut text = expand(&text, &Default::default(), &|name| FILTERS.contains(&name)).unwrap();
    let call = FilterCall::new("pcap", ["x".to_string()]);
    assert_eq!(begin_with(&mut text, &call, &|name| name == "pcap"), count, "{source}");
    let printed = print(&text);
    assert_eq!(printed.trim_end().replace('\n', " "), expected, "{source}");
    assert_eq!(parse(&printed), Ok(text), "{source}");
}

#[test]
fn chains_without_a_source_get_it() {
    check("tcp | count", "pcap x | tcp | count", 1);
    check("tcp + udp; ip", "pcap x | tcp + pcap x | udp; pcap x | ip", 3);
    check("not tcp", "pcap x | not tcp", 1);
    check("tcp or udp and ip | count", "pcap x | tcp or udp and ip | count", 1);
    check(
        "{ tcp + { udp | ip } } | { count + count }",
        "{ pcap x | tcp + { pcap x | udp | ip } } | { count + count }",
        2,
    );
    // An edge before the chain leads from the source.
    check("{ |22 tcp + ||! udp }", "{ pcap x |22 tcp + pcap x ||! udp }", 2);
    check("let both = { tcp + udp }; both | count; set a=1", "{ pcap x | tcp + pcap x | udp } | count; set a=1", 2);
    check("foo | count", "pcap x | foo | count", 1);
    check("(tcp) > (count)", "pcap x | tcp | count", 1);
}

#[test]
fn chains_that_begin_with_a_source_or_a_reference_stay() {
    check("pcap y | tcp", "pcap y | tcp", 0);
    check("pcap y name=a | tcp; @a | udp", "pcap y name=a | tcp; @a | udp", 0);
    check("{ pcap y + pcap z } | tcp", "{ pcap y + pcap z } | tcp", 0);
    check("pcap y | tcp + udp", "pcap y | tcp + pcap x | udp", 1);
    check("set a=1", "set a=1", 0);
    check("tcp name=a; @a | count", "pcap x | tcp name=a; @a | count", 1);
}

#[test]
fn a_limit_stands_behind_each_source_and_its_selectors() {
    let role = |name: &str| match name {
        "pcap" => Role::Source,
        "ip" | "port" => Role::Selector,
        _ => Role::Other,
    };
    let rows = [
        ("pcap x", "pcap x | head 5"),
        ("pcap x | tcp", "pcap x | head 5 | tcp"),
        ("pcap x | ip | port 80 | tcp", "pcap x | ip | port 80 | head 5 | tcp"),
        ("pcap x | not ip and port 80", "pcap x | not ip and port 80 | head 5"),
        ("pcap x | ip | port |22 tcp", "pcap x | ip | head 5 | port |22 tcp"),
        ("pcap x |! tcp", "pcap x | head 5 |! tcp"),
        ("pcap x || tcp", "pcap x | head 5 || tcp"),
        ("pcap x | { tcp + udp }", "pcap x | head 5 | { tcp + udp }"),
        ("{ pcap x + pcap y | ip } | tcp", "{ pcap x + pcap y | ip } | head 5 | tcp"),
        ("{ pcap x | tcp + pcap y } | count", "{ pcap x | head 5 | tcp + pcap y | head 5 } | count"),
        ("pcap x name=all | ip | tcp; @all | udp", "pcap x | head 5 name=all | ip | tcp; @all | udp"),
    ];
    for (source, expected) in rows {
        let mut text = expand(&parse(source).unwrap(), &Default::default(), &|name| FILTERS.contains(&name)).unwrap();
        put_behind_sources(&mut text, &FilterCall::new("head", ["5".to_string()]), &role);
        assert_eq!(print(&text).trim_end().replace('\n', " "), expected, "{source}");
    }
}

#[test]
fn what_it_is_called_is_data() {
    let odd = r#"a "b" $c ${d} | e'; @f"#;
    let mut text = expand(&parse("count").unwrap(), &Default::default(), &|_| true).unwrap();
    let call = FilterCall::new("pcap", [odd.to_string(), "-".to_string()]);
    assert_eq!(begin_with(&mut text, &call, &|_| false), 1);
    for printed in [print(&text), print_paper(&text, &|_| None)] {
        let again = expand(&parse(&printed).unwrap(), &Default::default(), &|_| true).unwrap();
        assert_eq!(again, text, "{printed}");
        let call = again.items.iter().find_map(|item| match item {
            request::Item::Path(par) => match &par.branches[0].links[0].term {
                request::Term::Filter(call) => Some(call.clone()),
                _ => None,
            },
            _ => None,
        });
        assert_eq!(call.unwrap().main.iter().map(|value| value.text.as_str()).collect::<Vec<_>>(), [odd, "-"]);
    }
}
