//! Filling in `let` and `$x`: results and errors.

use std::collections::BTreeMap;

use request::{Diagnostic, Text, expand, parse, print};

const FILTERS: &[&str] = &["pcap", "tcp", "udp", "http", "dns", "files", "count", "rtsp", "bpf"];

fn expanded(source: &str) -> Result<Text, Diagnostic> {
    let text = parse(source).unwrap_or_else(|error| panic!("{}", error.render(source, "request")));
    let variables: BTreeMap<String, String> =
        [("file", "a b.pcap"), ("dir", "out"), ("odd", "\" | ${dir} $dir \\"), ("empty", "")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
    expand(&text, &variables, &|name| FILTERS.contains(&name))
}

fn check(source: &str, expected: &str) {
    let text = expanded(source).unwrap_or_else(|error| panic!("{}", error.render(source, "request")));
    let printed = print(&text);
    assert_eq!(printed.trim_end().replace('\n', " "), expected, "{source}");
    assert_eq!(parse(&printed), Ok(text), "{source}");
}

#[test]
fn lets_and_variables_are_filled_in() {
    let rows: &[(&str, &str)] = &[
        ("let web = tcp | http; pcap a | web | files", "pcap a | { tcp | http } | files"),
        ("let web = http; pcap a | not web", "pcap a | not http"),
        ("let both = tcp + udp; both | count", "{ tcp + udp } | count"),
        ("let both = { tcp + udp }; both | count", "{ tcp + udp } | count"),
        ("let no = not tcp; count | no and udp", "count | { not tcp } and udp"),
        ("let x = y | count; let y = tcp; x", "{ tcp | count }"),
        ("(pcap,a) > (web); let web = (tcp) > (http)", "pcap a | { tcp | http }"),
        ("let unused = tcp; set workers=2; count", "set workers=2; count"),
        ("let x = pcap $file; x + x", "pcap \"a b.pcap\" + pcap \"a b.pcap\""),
        ("files dir=${dir}/x k=\"${dir} ${dir}\"", "files dir=out/x k=\"out out\""),
        ("pcap $empty", "pcap \"\""),
        ("set dir=$dir; count", "set dir=out; count"),
        // A value is data: quotes and dollars in it have no meaning.
        ("bpf $odd", r#"bpf "\" | $${dir} $dir \\""#),
        ("# note\ncount # more", "count"),
        ("unknown 1 | other", "unknown 1 | other"),
    ];
    for (source, expected) in rows {
        check(source, expected);
    }
}

#[test]
fn each_use_of_a_let_has_nodes_of_its_own() {
    let rows: &[(&str, &str)] = &[
        ("rtsp name=tag | count; @tag | files", "rtsp name=tag | count; @tag | files"),
        (
            "let x = { rtsp name=tag | count + @tag | files }; tcp | x; udp | x",
            "tcp | { rtsp name=tag | count + @tag | files }; udp | { rtsp name=tag.2 | count + @tag.2 | files }",
        ),
        // Inside a copy its own node hides the outer one. New names skip names that are taken.
        (
            "let x = tcp name=tag | @tag; pcap name=tag; count name=tag.2; x | @tag",
            "pcap name=tag; count name=tag.2; { tcp name=tag.3 | @tag.3 } | @tag",
        ),
        ("let x = tcp | @out; count name=out; x", "count name=out; { tcp | @out }"),
    ];
    for (source, expected) in rows {
        check(source, expected);
    }
}

#[test]
fn errors_point_at_the_text() {
    // The source, the message, the text under the caret.
    let rows: &[(&str, &str, &str)] = &[
        ("let a = b | a; a", "`let a` uses itself", "a"),
        ("let a = b; let b = not { c }; let c = a; tcp", "`let a` uses itself", "a"),
        ("let tcp = udp; tcp", "`let tcp` hides the filter of that name", "tcp"),
        ("let a = tcp; let a = udp; a", "`let a` is given twice", "a"),
        ("let a = tcp; a x=1", "`a` is a `let` and takes no parameters", "x"),
        ("let a = tcp; a 5", "`a` is a `let` and takes no parameters", "5"),
        ("let a = tcp; a name=b", "`a` is a `let` and takes no parameters", "b"),
        ("pcap $fil", "variable `fil` has no value; did you mean `$file`?", "$fil"),
        ("files dir=\"a\\\"${nothing}\"", "variable `nothing` has no value", "${nothing}"),
        ("let unused = pcap $nothing; tcp", "variable `nothing` has no value", "$nothing"),
        ("set x=$nothing; tcp", "variable `nothing` has no value", "$nothing"),
        ("set a=1; set b=2 a=3; tcp", "`a` is set twice", "a"),
        ("tcp name=x; udp name=x", "two nodes are named `x`", "x"),
        ("let a = { tcp name=x + udp name=x }; a", "two nodes are named `x`", "x"),
        ("tcp name=udp", "a node cannot be named `udp`: that is a filter", "udp"),
        ("let a = tcp; udp name=a", "a node cannot be named `a`: that is a `let`", "a"),
        ("tcp name=stream; @steam | count", "no node is named `steam`; did you mean `@stream`?", "@steam"),
        ("tcp | @zzz", "no node is named `zzz`", "@zzz"),
        ("let a = tcp name=x; a; @x | count", "`x` is inside of `let a`", "@x"),
        ("let a = tcp name=x; let b = @x; a; b", "`x` is inside of `let a`", "@x"),
        ("tcp name=stream; stream | count", "no filter `stream`; a node has that name", "stream"),
        ("let session = tcp; sesion | count", "no filter `sesion`; did you mean `session`?", "sesion"),
    ];
    for (source, message, under) in rows {
        let error = expanded(source).err().unwrap_or_else(|| panic!("{source} has an error"));
        assert_eq!(error.message, *message, "{source}");
        assert_eq!(&source[error.span.start..error.span.end], *under, "{source}");
    }
}

#[test]
fn circles_are_shown() {
    let error = expanded("let a = b; let b = c; let c = a; tcp").expect_err("a circle");
    assert_eq!(error.help.as_deref(), Some("the circle is a -> b -> c -> a"));
}

#[test]
fn growth_is_bounded() {
    let doubling: String = (1..60).map(|level| format!("let x{level} = x{} + x{}; ", level - 1, level - 1)).collect();
    let long_row: String = (1..10_000).map(|level| format!("let x{level} = x{};\n", level - 1)).collect();
    let big = "v".repeat(200_000);
    let rows: &[(String, &str)] = &[
        (format!("let x0 = tcp; {doubling} x30"), "more than 16384 terms once"),
        (format!("let x0 = tcp; {long_row} x9999"), "nested too deeply once"),
        (format!("let x0 = x9999; {long_row} x1"), "uses itself"),
        (format!("let x = tcp k={big}; {}", "x;".repeat(1_000)), "more than 8388608 bytes once"),
        ("{".repeat(40) + "x" + &"}".repeat(40) + "; let x = " + &"not ".repeat(40) + "tcp", "nested too deeply once"),
    ];
    for (source, message) in rows {
        let error = expanded(source).expect_err(message);
        assert!(error.message.contains(message), "{}", error.message);
        assert!(error.render(source, "request").len() < 1_000);
    }
    // Many unknown names beside many lets: only the first name is compared with all the lets.
    let many: String =
        (0..8_000).map(|n| format!("let longer_let_name_{n}_a = tcp; zzzzzzzzzzzzzzzzzzzzzzz{n}xyz;")).collect();
    assert!(expanded(&many).is_ok());
}
