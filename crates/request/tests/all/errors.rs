//! Errors as people see them: message, caret and remedy.

use std::fmt::Write as _;

use request::{Diagnostic, parse};

fn rendered(source: &str) -> String {
    let error: Diagnostic = match parse(source) {
        Ok(text) => panic!("{source:?} was read: {text:?}"),
        Err(error) => error,
    };
    error.render(source, "request")
}

/// Checks the message and the line with the caret; whole renderings are below.
fn check(source: &str, message: &str, carets: &str) {
    let rendered = rendered(source);
    let lines: Vec<&str> = rendered.lines().collect();
    assert_eq!(lines[0], format!("error: {message}"), "{source:?}\n{rendered}");
    let shown = lines[3].split_once("| ").map_or("", |(_, shown)| shown);
    let caret_line = lines[4].split_once("| ").map_or("", |(_, carets)| carets);
    let caret_end = caret_line.rfind('^').map_or(0, |last| last + 1);
    assert_eq!(&caret_line[..caret_end], carets, "{source:?} shown as {shown:?}\n{rendered}");
}

#[test]
fn whole_renderings() {
    let mut all = String::new();
    for source in SHOWN {
        _ = writeln!(all, "{}", rendered(source));
    }
    assert_eq!(all, RENDERED);
}

const SHOWN: &[&str] = &[
    "pcap trace.pcap | tcp |80x http",
    "pcap trace.pcap | bpf \"tcp port 80 | files",
    "pcap trace.pcap | { tcp\n  | http",
    "pcap a |",
    "files dir=out trace",
    "let and = tcp | http",
    "tcp name=a x=1 name=b",
];

const RENDERED: &str = r#"error: `80x` is no class selector
  --> request:1:24
   |
 1 | pcap trace.pcap | tcp |80x http
   |                        ^^^ expected a number or a range
   = help: a selector is `22`, `!80`, `22:23`, `!1:1023`, or `!` for what no other edge selects, else what is rejected

error: this quote is never closed
  --> request:1:23
   |
 1 | pcap trace.pcap | bpf "tcp port 80 | files
   |                       ^ opened here
   = help: end the value with `"`; inside, `\"` is a quote and `\\` a backslash

error: this `{` is never closed
  --> request:1:19
   |
 1 | pcap trace.pcap | { tcp
   |                   ^ opened here
   = help: add the missing `}`

error: expected a filter after the edge, found the end of the request
  --> request:1:9
   |
 1 | pcap a |
   |         ^ ends here

error: the plain value `trace` stands after a key
  --> request:1:15
   |
 1 | files dir=out trace
   |               ^^^^^ must come first
   = help: write the plain value right after the filter's name, or give it a key

error: expected a name after `let`, found the reserved word `and`
  --> request:1:5
   |
 1 | let and = tcp | http
   |     ^^^ reserved word

error: `name=` is given twice
  --> request:1:16
   |
 1 | tcp name=a x=1 name=b
   |                ^^^^ this node has a name already

"#;

#[test]
fn edges_and_selectors() {
    let rows: &[(&str, &str, &str)] = &[
        ("|22 a", "an edge cannot start a request", "^^^"),
        ("let x = | a", "an edge cannot start a request", "        ^"),
        ("a; || b", "an edge cannot start a request", "   ^^"),
        ("a |22", "expected a filter after the edge, found the end of the request", "     ^"),
        ("a | 22 b", "`22` is not a name", "    ^^"),
        ("a |!x", "`!x` is no class selector", "   ^^"),
        ("a |22:80:90 b", "`22:80:90` is no class selector", "   ^^^^^^^^"),
        ("a |80:22 b", "the range 80:22 runs backwards", "   ^^^^^"),
        ("a |!80:4294967296 b", "class 4294967296 is too large", "       ^^^^^^^^^^"),
        ("a ||| b", "expected a filter after the edge, found `|`", "    ^"),
        ("a | | b", "expected a filter after the edge, found `|`", "    ^"),
        ("a > b", "expected `|`, found `>`", "  ^"),
        ("a + + b", "expected a filter after `+`, found `+`", "    ^"),
        ("a or", "expected a filter after `or`, found the end of the request", "    ^"),
        ("a and or b", "expected a filter after `and`, found the reserved word `or`", "      ^^"),
        ("not", "expected a filter after `not`, found the end of the request", "   ^"),
        ("a not b", "expected `|`, `+` or `;`, found the reserved word `not`", "  ^^^"),
    ];
    for (source, message, carets) in rows {
        check(source, message, carets);
    }
}

#[test]
fn groups_and_items() {
    let rows: &[(&str, &str, &str)] = &[
        ("{", "this `{` is never closed", "^"),
        ("a | { b + { c }", "this `{` is never closed", "    ^"),
        ("{}", "expected a filter, found `}`", " ^"),
        ("a }", "this `}` closes nothing", "  ^"),
        ("a )", "this `)` closes nothing", "  ^"),
        ("{ a )", "expected `|`, `+` or `}`, found `)`", "    ^"),
        ("{ a; b }", "`;` ends an item and cannot stand inside `{ }`", "   ^"),
        ("{ a } b", "expected `|`, `+` or `;`, found `b`", "      ^"),
        ("a let x = b", "expected `|`, `+` or `;`, found the reserved word `let`", "  ^^^"),
        ("{ let x = b }", "expected a filter, found the reserved word `let`", "  ^^^"),
        ("let", "expected a name after `let`, found the end of the request", "   ^"),
        ("let x", "expected `=` after the name, found the end of the request", "     ^"),
        ("let x =", "expected a filter, found the end of the request", "       ^"),
        ("let x = ; a", "expected a filter, found `;`", "        ^"),
        ("let 2x = a", "`2x` is not a name", "    ^^"),
        ("let \"x\" = a", "expected a name after `let`, found `\"x\"`", "    ^^^"),
        ("set", "expected `KEY=VALUE` after `set`, found the end of the request", "   ^"),
        ("set 2", "expected `=` after `2`", "    ^"),
        ("set a=1, b=2", "expected a space, found `,`", "       ^"),
        ("set a=1 a=2", "`a` is given twice", "        ^"),
        ("set a=1 | b", "expected `KEY=VALUE` or `;`, found `|`", "        ^"),
        ("set name=x", "`name` is no setting", "    ^^^^"),
        ("a | (b)", "expected a filter after the edge, found `(`", "    ^"),
    ];
    for (source, message, carets) in rows {
        check(source, message, carets);
    }
}

#[test]
fn filters_and_values() {
    let rows: &[(&str, &str, &str)] = &[
        ("\"tcp\" x", "expected a filter, found `\"tcp\"`", "^^^^^"),
        ("tcp/ip", "`tcp/ip` is not a name", "^^^^^^"),
        ("a | $x", "a variable stands for a value, not for a name", "    ^^"),
        ("a $x=1", "a variable stands for a value, not for a key", "  ^^"),
        ("a k=$x/out", "`$x` is only part of this value", "    ^^"),
        ("a k=${x", "`${` opens a variable that has no name or no end", "    ^^"),
        ("a k=", "expected a value after `k=`, found the end of the request", "    ^"),
        ("a k= | b", "expected a value after `k=`, found `|`", "     ^"),
        ("a k=@b", "expected a value after `k=`, found `@`", "    ^"),
        ("a k=#1\n", "expected a value after `k=`, found the end of the request", "    ^"),
        ("a k=1=2", "expected `|`, `+` or `;`, found `=`", "     ^"),
        ("size >=100", "`>` cannot be a key", "     ^"),
        ("port !=80", "`!` cannot be a key", "     ^"),
        ("port 80,443", "expected `|`, `+` or `;`, found `,`", "       ^"),
        ("a k=1 k=2", "`k` is given twice", "      ^"),
        ("a \"k\"=1", "a key stands without quotes", "  ^^^"),
        ("a and=1", "`and` is reserved and cannot be a key", "  ^^^"),
        ("a name=", "expected a value after `name=`, found the end of the request", "       ^"),
        ("a name=2", "`2` cannot name a node", "       ^"),
        ("a name=not", "`not` cannot name a node", "       ^^^"),
        ("a name=$x", "a node's name cannot be a variable", "       ^^"),
        ("@ x", "`@` needs the name of a node", "^"),
        ("@", "`@` needs the name of a node", "^"),
        ("@or", "expected the name of a node, found the reserved word `or`", " ^^"),
        ("a k=世 世界 | b", "the plain value `世界` stands after a key", "       ^^^^"),
        ("a\n| b\t| or", "expected a filter after the edge, found the reserved word `or`", "         ^^"),
    ];
    for (source, message, carets) in rows {
        check(source, message, carets);
    }
}

#[test]
fn paper_notation() {
    let rows: &[(&str, &str, &str)] = &[
        ("(a", "this `(` is never closed", "^"),
        ("(", "this `(` is never closed", "^"),
        ("(a) > ((b)", "this `(` is never closed", "      ^"),
        ("()", "expected `(`, found `)`", " ^"),
        ("(a))", "this `)` closes nothing", "   ^"),
        ("(a) > b", "expected a filter after the edge, found `b`", "      ^"),
        ("(a) 22 (b)", "expected an edge, found `22`", "    ^^"),
        ("(a) >22 (b)", "expected a filter after the edge, found `22`", "     ^^"),
        ("(a) 80x> (b)", "`80x` is no class selector", "    ^^^"),
        ("(a) 9:2> (b)", "the range 9:2 runs backwards", "    ^^^"),
        ("(a); 22> (b)", "an edge cannot start a request", "     ^^^"),
        ("(a) + (b)", "expected `>`, `|` or `;`, found `+`", "    ^"),
        ("(a) || (b)", "expected `>`, `|` or `;`, found `||`", "    ^^"),
        ("(a) (b)", "expected `>`, `|` or `;`, found `(`", "    ^"),
        ("((a); (b))", "`;` ends an item and cannot stand inside `( )`", "    ^"),
        ("(a,)", "expected `KEY=VALUE` after `,`, found `)`", "   ^"),
        ("(a b)", "expected `,` or `)`, found `b`", "   ^"),
        ("(a,k=tcp port)", "expected `,` or `)`, found `port`", "         ^^^^"),
        ("(a,k=1,v)", "the plain value `v` stands after a key", "       ^"),
        ("(a,k=1,k=2)", "`k` is given twice", "       ^"),
        ("(a | (b))", "expected `,` or `)`, found `|`", "   ^"),
        ("(a) > (@b)", "expected `(`, found `@`", "       ^"),
        ("(a) or", "expected `(` after `or`, found the end of the request", "      ^"),
        ("(a/b)", "`a/b` is not a name", " ^^^"),
    ];
    for (source, message, carets) in rows {
        check(source, message, carets);
    }
}

#[test]
fn help_says_what_would_be_right() {
    let rows: &[(&str, &str)] = &[
        ("pcap a not b", "`not` stands before a term"),
        ("port 80,443", "a value that holds `,` needs quotes"),
        ("a > b", "in pipe notation write `a | b`"),
        ("a | (b)", "group with `{ }`"),
        ("(a) | {b}", "in paper notation `( )` groups"),
        ("(a) || (b)", "`>>` cuts between workers"),
        ("a k=@b", "needs quotes"),
        ("a k=#1", "`k=\"\"`"),
        ("(a) > b", "`(b)`"),
        ("(a) >22 (b)", "before the arrow"),
        ("a k=$x/out", "`${x}`"),
        ("a let x = b", "separated by `;`"),
        ("set a=1, b=2", "separated by spaces"),
        ("|22 a", "`{ |22 a + |80 b }`"),
        ("22> (a)", "starts with a letter"),
    ];
    for (source, help) in rows {
        let rendered = rendered(source);
        let line = rendered.lines().find(|line| line.contains("= help: ")).unwrap_or("no help");
        assert!(line.contains(help), "{source:?}: {line}");
    }
}

#[test]
fn limits_are_errors() {
    let deep = "not ".repeat(100_000) + "a";
    check_limit(&deep, "nested too deeply");
    check_limit(&"{".repeat(500_000), "nested too deeply");
    check_limit(&"(".repeat(500_000), "nested too deeply");
    check_limit(&("not (".repeat(10_000) + "(a)"), "nested too deeply");
    check_limit(&"a|".repeat(20_000), "more than 16384 terms");
    check_limit(&"a;".repeat(20_000), "more than 16384 terms");
    check_limit(&" ".repeat(request::limits::SOURCE_BYTES_MAX + 1), "at most 1048576 are read");
    let deepest = "{".repeat(64) + "a" + &"}".repeat(64);
    let text = parse(&deepest).expect("the deepest nesting that is read");
    assert_eq!(parse(&request::print(&text)), Ok(text));
}

fn check_limit(source: &str, message: &str) {
    let rendered = rendered(source);
    assert!(rendered.contains(message), "{rendered}");
    assert!(rendered.len() < 1_000, "{}", rendered.len());
}

#[test]
fn long_texts_are_read_in_linear_time() {
    // Each is almost as long as a source may be. In quadratic time each would take minutes.
    let size = request::limits::SOURCE_BYTES_MAX - 10;
    let keys: String = (0..80_000).map(|key| format!("k{key}=1 ")).collect();
    for source in [
        " ".repeat(size),
        "\n".repeat(size),
        "#\n".repeat(size / 2),
        format!("a \"{}\"", "$".repeat(size - 10)),
        format!("a \"{}\"", "${x}".repeat(size / 8)),
        format!("a \"{}\"", "\\".repeat(size - 10)),
        format!("a k{}", "=".repeat(size - 10)),
        format!("a {}", "b".repeat(size - 10)),
        format!("a {keys}"),
        ";".repeat(size),
    ] {
        if let Ok(text) = parse(&source) {
            assert_eq!(parse(&request::print(&text)), Ok(text));
        }
    }
}
