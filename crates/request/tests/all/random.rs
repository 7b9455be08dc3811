//! Properties of random trees and random texts: printing reads back the same, formatting twice equals formatting once,
//! comments survive, and no input panics.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use request::{
    Chain, Edge, FilterCall, Item, Link, Name, Par, Param, Selector, Span, Term, Text, Value, Variable, expand, parse,
    print, print_paper,
};

const RESERVED: [&str; 5] = ["and", "or", "not", "let", "set"];

fn name() -> impl Strategy<Value = Name> {
    prop_oneof![
        Just("pcap".to_owned()),
        Just("name".to_owned()),
        Just("größe".to_owned()),
        Just("名".to_owned()),
        Just("nothing".to_owned()),
        "[a-z_][a-z0-9_.-]{0,6}",
    ]
    .prop_filter("names are not reserved", |text| !RESERVED.contains(&text.as_str()) && !text.starts_with("node_"))
    .prop_map(Name::new)
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![Just("policy.10.0.0.0/8".to_owned()), Just("80".to_owned()), "[a-z0-9_./:!<>*@#é\\\\-]{1,8}"]
        .prop_filter("keys are bare words with a letter or digit", |text| {
            !RESERVED.contains(&text.as_str())
                && text != "name"
                && !text.starts_with(['@', '#'])
                && text.contains(char::is_alphanumeric)
        })
}

const AWKWARD: &[&str] = &[
    "",
    "and",
    "or",
    "not",
    "let",
    "set",
    "name",
    ">",
    ">>",
    "22>",
    "$x",
    "$",
    "$$",
    "${x}",
    "$${x}",
    "@x",
    "#x",
    "!",
    "|",
    "\\",
    "\\\\",
    "\"",
    "\\\"",
    "a b",
    "世界",
    "tcp port 80",
    "a=b",
    "\u{feff}",
    "\u{a0}",
    "${",
    "{x}",
];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z0-9./_-]{1,8}",
        1 => proptest::sample::select(AWKWARD).prop_map(str::to_owned),
        3 => "[\"\\\\ $@#{}()|+;,=!>:ax0é世\n\t]{0,12}",
    ]
}

/// A value of pieces, some of which are variables.
fn value() -> impl Strategy<Value = Value> {
    let piece = prop_oneof![4 => text().prop_map(Ok), 1 => "[a-z_][a-z0-9_]{0,3}".prop_map(Err)];
    prop_oneof![3 => vec(text().prop_map(Ok), 1), 1 => vec(piece, 1..5)].prop_map(
        |pieces: Vec<Result<String, String>>| {
            let mut value = Value::new("");
            for piece in pieces {
                match piece {
                    Ok(text) => value.text.push_str(&text),
                    Err(name) => {
                        value.variables.push(Variable { name: Name::new(&name), at: value.text.len() });
                        value.text.push_str(&format!("${{{name}}}"));
                    }
                }
            }
            value
        },
    )
}

fn params(least: usize) -> impl Strategy<Value = Vec<Param>> {
    proptest::collection::btree_map(key(), value(), least..least + 3)
        .prop_map(|map| map.into_iter().map(|(key, value)| Param { key: Name::new(key), value }).collect())
}

fn edge() -> impl Strategy<Value = Edge> {
    let number = prop_oneof![0..100u32, any::<u32>()];
    let classes = (any::<bool>(), number.clone(), prop_oneof![Just(0), number])
        .prop_map(|(invert, low, more)| Selector::Classes { invert, low, high: low.saturating_add(more) });
    let select = option::of(prop_oneof![4 => classes, 1 => Just(Selector::Otherwise)]);
    (any::<bool>(), select).prop_map(|(cut, select)| Edge { cut, select, span: Span::NONE })
}

/// `settle` fixes references and labels once the whole tree exists.
fn leaf() -> impl Strategy<Value = Term> {
    let call =
        (name(), proptest::collection::vec(value(), 0..3), params(0), option::weighted(0.2, Just(Name::new("label"))))
            .prop_map(|(name, main, params, label)| {
                Term::Filter(FilterCall { name, main, params, label, span: Span::NONE })
            });
    prop_oneof![6 => call, 1 => (0..9u8).prop_map(|index| Term::Ref(Name::new(index.to_string())))]
}

fn unary() -> BoxedStrategy<Term> {
    leaf()
        .prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                3 => par(inner.clone(), true).prop_map(Term::Group),
                1 => inner.prop_map(|term| match term {
                    Term::Or(_) | Term::And(_) => Term::Group(Par::of_term(term)),
                    term => Term::Not(Box::new(term)),
                }),
            ]
        })
        .boxed()
}

fn operator(unary: BoxedStrategy<Term>) -> BoxedStrategy<Term> {
    let and = vec(unary.clone(), 2..4).prop_map(Term::And);
    let or = vec(prop_oneof![3 => unary.clone(), 1 => and.clone()], 2..4).prop_map(Term::Or);
    prop_oneof![6 => unary, 1 => and, 1 => or].boxed()
}

fn par(unary: BoxedStrategy<Term>, lead_too: bool) -> BoxedStrategy<Par> {
    let lead = option::weighted(0.4, edge()).prop_map(move |lead| lead.filter(|_| lead_too));
    let chain =
        (lead, operator(unary.clone()), vec((edge(), operator(unary)), 0..3)).prop_map(|(lead, first, rest)| {
            let mut links = vec![Link { edge: None, term: first }];
            links.extend(rest.into_iter().map(|(edge, term)| Link { edge: Some(edge), term }));
            Chain { lead, links, span: Span::NONE }
        });
    vec(chain, 1..3).prop_map(Par::beside).boxed()
}

fn tree() -> impl Strategy<Value = Text> {
    let item = prop_oneof![
        4 => par(unary(), false).prop_map(Item::Path),
        1 => (name(), par(unary(), false)).prop_map(|(name, body)| Item::Let { name, body, span: Span::NONE }),
        1 => params(1).prop_map(|settings| Item::Set { settings, span: Span::NONE }),
    ];
    vec(item, 0..4).prop_map(|items| {
        let mut text = Text::new(items);
        settle(&mut text);
        text
    })
}

/// Gives each label a name of its own, and makes references name one of them. Without labels references become filters.
fn settle(text: &mut Text) {
    fn each(par: &mut Par, visit: &mut dyn FnMut(&mut Term)) {
        for link in par.branches.iter_mut().flat_map(|chain| &mut chain.links) {
            term(&mut link.term, visit);
        }
    }
    fn term(this: &mut Term, visit: &mut dyn FnMut(&mut Term)) {
        visit(this);
        match this {
            Term::Group(par) => each(par, visit),
            Term::Or(terms) | Term::And(terms) => terms.iter_mut().for_each(|operand| term(operand, visit)),
            Term::Not(operand) => term(operand, visit),
            Term::Filter(_) | Term::Ref(_) => {}
        }
    }
    let mut pars: Vec<&mut Par> = Vec::new();
    for item in &mut text.items {
        match item {
            Item::Let { body: par, .. } | Item::Path(par) => pars.push(par),
            Item::Set { .. } => {}
        }
    }
    let mut label_count = 0;
    for par in &mut pars {
        each(par, &mut |term| {
            if let Term::Filter(FilterCall { label: Some(label), .. }) = term {
                label.text = format!("node_{label_count}");
                label_count += 1;
            }
        });
    }
    for par in &mut pars {
        each(par, &mut |term| {
            if let Term::Ref(name) = term {
                let index: usize = name.text.parse().expect("a number, from `leaf`");
                if label_count > 0 {
                    name.text = format!("node_{}", index % label_count);
                } else {
                    let call = FilterCall {
                        name: Name::new("tcp"),
                        main: Vec::new(),
                        params: vec![],
                        label: None,
                        span: Span::NONE,
                    };
                    *term = Term::Filter(call);
                }
            }
        });
    }
}

fn read(source: &str) -> Text {
    parse(source).unwrap_or_else(|error| panic!("{source:?}\n{}", error.render(source, "request")))
}

/// The printed text with other space at the blanks between tokens, chosen by `choices`.
fn respaced(printed: &str, choices: &[u8]) -> (String, usize) {
    let mut out = String::new();
    let (mut quoted, mut escaped) = (false, false);
    let mut choices = choices.iter().cycle();
    let mut comment_count = 0;
    for character in printed.chars() {
        if !quoted && matches!(character, ' ' | '\n') {
            match choices.next() {
                Some(0) => out.push_str("\n\n "),
                Some(1) => {
                    comment_count += 1;
                    out.push_str(&format!(" # {comment_count} ;\n"));
                }
                Some(2) => {
                    comment_count += 1;
                    out.push_str(&format!("\n# {comment_count} \"\n\n"));
                }
                _ => out.push(character),
            }
            continue;
        }
        out.push(character);
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
    }
    (out, comment_count)
}

/// Whether paper notation can tell the text's references from its filters.
fn paper_has(text: &Text) -> bool {
    let (mut labels, mut references, mut bare) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    text.each_term(&mut |term| match term {
        Term::Ref(name) => _ = references.insert(name.text.clone()),
        Term::Filter(call) => {
            labels.extend(call.label.iter().map(|label| label.text.clone()));
            if call.main.is_empty() && call.params.is_empty() && call.label.is_none() {
                bare.insert(call.name.text.clone());
            }
        }
        _ => {}
    });
    references.is_subset(&labels) && bare.is_disjoint(&labels)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn printed_trees_read_back(tree in tree()) {
        let printed = print(&tree);
        prop_assert_eq!(&read(&printed), &tree, "{}", printed);
        prop_assert_eq!(print(&read(&printed)), printed);
        let paper = print_paper(&tree, &|_| None);
        prop_assert_eq!(&read(&paper), &tree, "{}", paper);
        prop_assert_eq!(print_paper(&read(&paper), &|_| None), paper);
    }

    #[test]
    fn comments_survive_and_formatting_twice_is_formatting_once(tree in tree(), choices in vec(0..8u8, 1..20)) {
        for printed in [print(&tree), print_paper(&tree, &|_| None)] {
            let (source, comment_count) = respaced(&printed, &choices);
            let text = read(&source);
            prop_assert_eq!(&text, &tree, "{}", source);
            prop_assert_eq!(text.layout.comments.len(), comment_count);
            let formats: [&dyn Fn(&Text) -> String; 2] = [&print, &|text| print_paper(text, &|_| None)];
            for format in formats {
                let formatted = format(&text);
                let again = read(&formatted);
                prop_assert_eq!(&again, &tree, "{}", formatted);
                let comments = |text: &Text| {
                    text.layout.comments.iter().map(|comment| comment.text.clone()).collect::<Vec<_>>()
                };
                prop_assert_eq!(comments(&again), comments(&text), "{}", formatted);
                prop_assert_eq!(format(&again), formatted);
            }
        }
    }

    #[test]
    fn no_text_panics(fragments in vec(fragment(), 0..24)) {
        anything(&fragments.concat())?;
    }

    #[test]
    fn no_characters_panic(source in "[\\PC\t\n\r|+{}();,\"=@#$!:>a0\\\\ ]{0,40}") {
        anything(&source)?;
    }
}

fn fragment() -> impl Strategy<Value = String> {
    const FRAGMENTS: &[&str] = &[
        "a", "b ", " | ", "|", "||", "|22 ", "|!80 ", "|!", "|1:2 ", "|80x", "{ ", " }", "(", ")", "(a)", "(b,", " > ",
        " 22> ", ">>", ">", ";", "; ", "let x = ", "let ", "x", "set a=1;", "set ", "a=1", "=", "name=n", " name=m ",
        "@n", "@", "(n)", "k=v ", ",", "\"", "\"v w\"", "\\", "\\\"", "$v", "${v}", "$$", "${", "}", "# c\n", "#",
        "\n", "\n\n", " ", " or ", " and ", " not ", "not ", " + ", "+", "世", "\u{a0}", "\t",
    ];
    proptest::sample::select(FRAGMENTS).prop_map(str::to_owned)
}

/// Checks any text: it gives an error that can be shown, or a tree that survives printing and expanding.
fn anything(source: &str) -> Result<(), TestCaseError> {
    let text = match parse(source) {
        Ok(text) => text,
        Err(error) => {
            let rendered = error.render(source, "request");
            prop_assert!(rendered.starts_with("error: ") && rendered.contains('^'), "{}", rendered);
            return Ok(());
        }
    };
    let printed = print(&text);
    prop_assert_eq!(&read(&printed), &text, "{:?} printed as {}", source, printed);
    prop_assert_eq!(print(&read(&printed)), printed, "{:?}", source);
    if paper_has(&text) {
        let paper = print_paper(&text, &|_| None);
        prop_assert_eq!(&read(&paper), &text, "{:?} printed as {}", source, paper);
    }
    let variables = BTreeMap::from([("v".to_owned(), "${v} \"".to_owned())]);
    match expand(&text, &variables, &|name| name == "a" || name == "b") {
        Ok(expanded) => {
            let printed = print(&expanded);
            prop_assert_eq!(&read(&printed), &expanded, "{:?} expanded to {}", source, printed);
            prop_assert_eq!(&expand(&expanded, &BTreeMap::new(), &|name| name == "a" || name == "b"), &Ok(expanded));
        }
        Err(error) => prop_assert!(error.render(source, "request").contains('^')),
    }
    Ok(())
}
