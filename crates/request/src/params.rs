//! The parameters of one filter while they are read: checks their order, and keys that are given twice.

use std::collections::BTreeSet;

use crate::diagnostic::{Diagnostic, Span, quote};
use crate::tree::{FilterCall, Name, Param, Term, Value};
use crate::value::{LABEL_KEY, RESERVED, is_name};

#[derive(Default)]
pub(crate) struct Params<'a> {
    main: Vec<Value>,
    params: Vec<Param>,
    label: Option<Name>,
    keys: BTreeSet<&'a str>,
}

impl<'a> Params<'a> {
    pub(crate) fn is_empty(&self) -> bool {
        self.main.is_empty() && self.keys.is_empty()
    }

    /// Adds a plain value; plain values come first.
    pub(crate) fn add_main(&mut self, value: Value, raw: &str) -> Result<(), Diagnostic> {
        if !self.keys.is_empty() {
            return Err(Diagnostic::new(format!("the plain value {} stands after a key", quote(raw)), value.span)
                .with_label("must come first")
                .with_help("write the plain value right after the filter's name, or give it a key"));
        }
        self.main.push(value);
        Ok(())
    }

    /// Adds `key=value`; `name=x` names the node.
    pub(crate) fn add(&mut self, key: Name, key_text: &'a str, value: Value) -> Result<(), Diagnostic> {
        if !self.keys.insert(key_text) {
            return Err(if key_text == LABEL_KEY {
                Diagnostic::new("`name=` is given twice", key.span).with_label("this node has a name already")
            } else {
                twice(&key)
            });
        }
        if key_text != LABEL_KEY {
            self.params.push(Param { key, value });
            return Ok(());
        }
        if !value.variables.is_empty() {
            return Err(Diagnostic::new("a node's name cannot be a variable", value.span).with_label("expected a name"));
        }
        if !is_name(&value.text) || RESERVED.contains(&value.text.as_str()) {
            return Err(Diagnostic::new(format!("{} cannot name a node", quote(&value.text)), value.span)
                .with_label("expected a name")
                .with_help(
                    "a name is made of letters, digits, `_`, `-` and `.`, digits not first; and it is no reserved word",
                ));
        }
        self.label = Some(Name { text: value.text, span: value.span });
        Ok(())
    }

    /// Makes the filter; its name and parameters are at `span`.
    pub(crate) fn into_term(self, name: Name, span: Span) -> Term {
        Term::Filter(FilterCall { name, main: self.main, params: self.params, label: self.label, span })
    }
}

pub(crate) fn twice(key: &Name) -> Diagnostic {
    Diagnostic::new(format!("`{}` is given twice", key.text), key.span).with_label("given before")
}
