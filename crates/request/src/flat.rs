//! Every node of the tree on one line, in either notation. Also its `Display`, which is the pipe notation.
//!
//! Breaking long items over lines and putting comments back is `print.rs`.

use std::fmt;

use crate::tree::{Chain, Edge, FilterCall, Item, Link, Notation, Par, Param, Term};
use crate::value::LABEL_KEY;

/// How to write a text: the notation, and for paper notation the key of a filter's plain value.
#[derive(Clone, Copy)]
pub(crate) struct Style<'a> {
    pub(crate) notation: Notation,
    pub(crate) main_key: &'a dyn Fn(&str) -> Option<String>,
}

pub(crate) const PIPE: Style<'static> = Style { notation: Notation::Pipe, main_key: &|_| None };

/// How tightly an operator holds its operands.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(crate) enum Rank {
    Or,
    And,
    Unary,
}

impl Style<'_> {
    pub(crate) fn beside(self) -> &'static str {
        match self.notation {
            Notation::Pipe => "+",
            Notation::Paper => "|",
        }
    }

    pub(crate) fn group(self) -> (&'static str, &'static str) {
        match self.notation {
            Notation::Pipe => ("{", "}"),
            Notation::Paper => ("(", ")"),
        }
    }

    pub(crate) fn item(self, item: &Item) -> String {
        match item {
            Item::Path(par) => self.par(par),
            Item::Let { name, body, .. } => format!("let {} = {}", name.text, self.par(body)),
            Item::Set { settings, .. } => {
                let mut out = String::from("set");
                for setting in settings {
                    out.push(' ');
                    push_param(&mut out, setting);
                }
                out
            }
        }
    }

    pub(crate) fn par(self, par: &Par) -> String {
        let mut out = String::new();
        self.push_par(&mut out, par);
        out
    }

    pub(crate) fn chain(self, chain: &Chain) -> String {
        let mut out = String::new();
        self.push_chain(&mut out, chain);
        out
    }

    /// A term where an operator of `rank` or looser needs no braces.
    pub(crate) fn term(self, term: &Term, rank: Rank) -> String {
        let mut out = String::new();
        self.push_term(&mut out, term, rank);
        out
    }

    pub(crate) fn edge(self, edge: &Edge) -> String {
        let arrow = match (self.notation, edge.cut) {
            (Notation::Pipe, false) => "|",
            (Notation::Pipe, true) => "||",
            (Notation::Paper, false) => ">",
            (Notation::Paper, true) => ">>",
        };
        match (self.notation, &edge.select) {
            (_, None) => arrow.to_owned(),
            (Notation::Pipe, Some(select)) => format!("{arrow}{select}"),
            (Notation::Paper, Some(select)) => format!("{select}{arrow}"),
        }
    }

    fn push_par(self, out: &mut String, par: &Par) {
        for (index, chain) in par.branches.iter().enumerate() {
            if index > 0 {
                out.push(' ');
                out.push_str(self.beside());
                out.push(' ');
            }
            self.push_chain(out, chain);
        }
    }

    fn push_chain(self, out: &mut String, chain: &Chain) {
        if let Some(edge) = &chain.lead {
            out.push_str(&self.edge(edge));
            out.push(' ');
        }
        for (index, link) in chain.links.iter().enumerate() {
            if index > 0 {
                out.push(' ');
                out.push_str(&self.edge(&link.edge_or_plain()));
                out.push(' ');
            }
            self.push_term(out, &link.term, Rank::Or);
        }
    }

    fn push_term(self, out: &mut String, term: &Term, rank: Rank) {
        // Parsers never nest operators like this without a group; a tree made by hand might.
        if term.rank() < rank {
            let (open, close) = self.group();
            out.push_str(open);
            out.push(' ');
            self.push_term(out, term, Rank::Or);
            out.push(' ');
            out.push_str(close);
            return;
        }
        match term {
            Term::Filter(call) => self.push_filter(out, call),
            Term::Ref(name) => match self.notation {
                Notation::Pipe => out.push_str(&format!("@{}", name.text)),
                Notation::Paper => out.push_str(&format!("({})", name.text)),
            },
            Term::Group(par) => {
                let (open, close) = self.group();
                out.push_str(open);
                out.push(' ');
                self.push_par(out, par);
                out.push(' ');
                out.push_str(close);
            }
            Term::Or(terms) => self.push_operands(out, terms, " or ", Rank::And),
            Term::And(terms) => self.push_operands(out, terms, " and ", Rank::Unary),
            Term::Not(operand) => {
                out.push_str("not ");
                self.push_term(out, operand, Rank::Unary);
            }
        }
    }

    fn push_operands(self, out: &mut String, terms: &[Term], word: &str, rank: Rank) {
        for (index, term) in terms.iter().enumerate() {
            if index > 0 {
                out.push_str(word);
            }
            self.push_term(out, term, rank);
        }
    }

    fn push_filter(self, out: &mut String, call: &FilterCall) {
        let (open, separator, close) = match self.notation {
            Notation::Pipe => ("", ' ', ""),
            Notation::Paper => ("(", ',', ")"),
        };
        out.push_str(open);
        out.push_str(&call.name.text);
        for main in &call.main {
            out.push(separator);
            // A key may be given only once, so several plain values stay plain.
            if call.main.len() == 1
                && let Some(key) = (self.main_key)(&call.name.text)
                && call.params.iter().all(|param| param.key.text != key)
            {
                out.push_str(&key);
                out.push('=');
            }
            out.push_str(&main.encode());
        }
        if let Some(label) = &call.label {
            out.push(separator);
            out.push_str(LABEL_KEY);
            out.push('=');
            out.push_str(&label.text);
        }
        for param in &call.params {
            out.push(separator);
            push_param(out, param);
        }
        out.push_str(close);
    }
}

fn push_param(out: &mut String, param: &Param) {
    out.push_str(&param.key.text);
    out.push('=');
    out.push_str(&param.value.encode());
}

impl Link {
    pub(crate) fn edge_or_plain(&self) -> Edge {
        self.edge.unwrap_or(Edge { cut: false, select: None, span: self.term.span() })
    }
}

impl Term {
    pub(crate) fn rank(&self) -> Rank {
        match self {
            Term::Or(_) => Rank::Or,
            Term::And(_) => Rank::And,
            Term::Filter(_) | Term::Group(_) | Term::Ref(_) | Term::Not(_) => Rank::Unary,
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&PIPE.item(self))
    }
}

impl fmt::Display for Par {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&PIPE.par(self))
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&PIPE.chain(self))
    }
}

impl fmt::Display for Edge {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&PIPE.edge(self))
    }
}

impl fmt::Display for Term {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&PIPE.term(self, Rank::Or))
    }
}

impl fmt::Display for FilterCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        PIPE.push_filter(&mut out, self);
        formatter.write_str(&out)
    }
}
