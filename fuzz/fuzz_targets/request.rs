//! Any text ends in an error that can be shown, or in a tree that survives printing and expanding.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use request::{expand, parse, print, print_paper};

fuzz_target!(|source: &str| {
    let text = match parse(source) {
        Ok(text) => text,
        Err(error) => {
            assert!(error.render(source, "request").starts_with("error: "));
            return;
        }
    };
    let printed = print(&text);
    let again = parse(&printed).expect("what is printed can be read");
    assert_eq!(again, text);
    assert_eq!(print(&again), printed);
    // References to nodes that the text does not name read back as filters: readable, not always the same.
    assert!(parse(&print_paper(&text, &|_| None)).is_ok());
    let variables = BTreeMap::from([("x".to_owned(), "${x} \" |".to_owned())]);
    if let Ok(expanded) = expand(&text, &variables, &|name| name.len() < 3) {
        assert_eq!(parse(&print(&expanded)).expect("what is printed can be read"), expanded);
    }
});
