//! A request with any kind of filter reads back from both notations as the same request.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use request::{Term, Text, parse, print, print_paper};
use streamline::registry;

/// Name, parameters and node name of each filter. A plain value stands under its key.
type Filters = Vec<(String, Vec<(String, String)>, Option<String>)>;

fn main_key(name: &str) -> Option<String> {
    Some(registry().find(name)?.main_param()?.key.to_string())
}

fn filters(text: &Text) -> Filters {
    let mut filters = Vec::new();
    text.each_term(&mut |term| {
        let Term::Filter(call) = term else { return };
        let name = &call.name.text;
        let main = call.main.iter().map(|value| (main_key(name).unwrap_or_default(), value.text.clone()));
        let params = call.params.iter().map(|param| (param.key.text.clone(), param.value.text.clone()));
        let label = call.label.as_ref().map(|label| label.text.clone());
        filters.push((name.clone(), main.chain(params).collect(), label));
    });
    filters
}

fn read(source: &str) -> Text {
    parse(source).unwrap_or_else(|error| panic!("{}", error.render(source, "request")))
}

fn check(source: &str) {
    let text = read(source);
    for printed in [print(&text), print_paper(&text, &main_key), print_paper(&text, &|_| None)] {
        assert_eq!(filters(&read(&printed)), filters(&text), "{source}\n{printed}");
    }
}

/// A value in quotes.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![3 => "[a-z0-9./_-]{1,8}", 1 => "[a-z0-9 $@#{}()|+;,=!>:]{0,8}"].prop_map(|text| format!("\"{text}\""))
}

/// Values of the filter's own parameters, the plain ones, and a name of its node.
fn call() -> impl Strategy<Value = (Vec<Option<String>>, Vec<String>, bool)> {
    (vec(option::of(value()), 32), vec(value(), 0..3), any::<bool>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_filter_reads_back_from_paper_notation((given, plain, labelled) in call()) {
        for kind in registry().kinds() {
            let main = kind.main_param().map_or(&[][..], |_| &plain[..]);
            let mut source = [&[kind.name.to_string()], main].concat().join(" ");
            // The key of a plain value may stand beside it only where the value has another one.
            let own = kind.params.iter().zip(&given).filter(|(param, _)| !param.main || main.is_empty());
            for (param, value) in own {
                if let Some(value) = value {
                    // A key that ends in a dot goes on with a network.
                    let rest = if param.key.ends_with('.') { "10.0.0.0/8" } else { "" };
                    source.push_str(&format!(" {}{rest}={value}", param.key));
                }
            }
            if labelled {
                source.push_str(" name=node");
            }
            check(&source);
        }
    }
}

#[test]
fn no_filter_has_a_parameter_that_names_the_node() {
    for kind in registry().kinds() {
        assert!(kind.params.iter().all(|param| param.key != "name"), "{}", kind.name);
    }
    check("packets | by proto");
    check("packets | sort frame.len name=last");
}
