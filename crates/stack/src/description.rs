//! From a text to a stack: parsing, completing what the text leaves out, and building the blocks.
//!
//! The grammar is that of requests, restricted to a single chain. Errors point into the text.

use std::fmt;

use base::limits::STACK_BLOCKS;
use request::tree::FilterCall;
use request::{Chain, Diagnostic, Item, Link, Name, Span, Term, nearest};

use crate::block::Block;
use crate::blocks::KINDS;
use crate::facts::{Env, Facts};
use crate::kind::{Given, Kind, Layer, Param, Site};
use crate::stack::Stack;

/// An error in a stack's text and its place. [`Diagnostic::render`] prints it with carets.
pub type StackError = Diagnostic;

/// A stack as its text describes it, the application's end first.
#[derive(Clone, Debug)]
pub struct Description {
    blocks: Vec<Call>,
}

#[derive(Clone)]
struct Call {
    kind: &'static Kind,
    given: Given,
}

impl fmt::Debug for Call {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text())
    }
}

impl Description {
    /// Parses names of blocks and their parameters. [`Description::complete`] checks which of them fit together.
    pub fn parse(text: &str) -> Result<Description, StackError> {
        let parsed = request::parse(text)?;
        let mut chains = Vec::new();
        for item in &parsed.items {
            match item {
                Item::Path(par) => chains.extend(&par.branches),
                Item::Let { span, .. } | Item::Set { span, .. } => {
                    return Err(Diagnostic::new("a stack has neither `let` nor `set`", *span));
                }
            }
        }
        let [chain] = chains[..] else {
            return Err(match chains.get(1) {
                Some(second) => Diagnostic::new("a stack is one chain of blocks", second.span)
                    .with_label("a second one")
                    .with_help("each flow has a stack of its own"),
                None => Diagnostic::new("this stack has no block", Span::new(0, 0)).with_help("write: udp 4000"),
            });
        };
        if let Some(link) = chain.links.get(STACK_BLOCKS) {
            let message = format!("a stack has at most {STACK_BLOCKS} blocks");
            return Err(Diagnostic::new(message, link.term.span()).with_label("one too many"));
        }
        let blocks = calls(chain)?.into_iter().map(Call::read).collect::<Result<_, _>>()?;
        Ok(Description { blocks })
    }

    /// Adds everything that the text leaves out. An error if blocks cannot stand in this order.
    pub fn complete(&self, facts: &Facts) -> Result<Description, StackError> {
        check_order(&self.blocks)?;
        let mut blocks = Vec::with_capacity(self.blocks.len());
        let mut missing = None;
        for call in &self.blocks {
            if call.kind.layer != Layer::Any {
                add_missing(&mut blocks, &mut missing, Some(call), facts)?;
                missing = call.kind.below.map(|below| (blocks.len() + 1, call, below.name(facts)));
            }
            blocks.push(call.clone());
        }
        // Missing protocols go in front of the blocks at the driver's end that may stand anywhere.
        add_missing(&mut blocks, &mut missing, None, facts)?;
        for call in &mut blocks {
            if let Some(complete) = call.kind.complete {
                complete(&mut call.given, facts)?;
            }
        }
        Ok(Description { blocks })
    }

    /// The canonical text with the same meaning. Default values are left out.
    pub fn canonical(&self) -> String {
        self.blocks.iter().map(Call::text).collect::<Vec<_>>().join(" | ")
    }

    /// The parameters of the first block of this name, for making a driver's filter. `None`: there is no such block.
    pub fn given(&self, name: &str) -> Option<&Given> {
        self.blocks.iter().find(|call| call.kind.name == name).map(|call| &call.given)
    }

    /// Completes the description and builds the stack.
    pub fn build(&self, facts: &Facts, env: &mut dyn Env) -> Result<Stack, StackError> {
        Ok(Stack::of_blocks(self.build_blocks(facts, env)?))
    }

    /// Completes the description and builds its blocks, for callers that insert blocks of their own.
    pub fn build_blocks(&self, facts: &Facts, env: &mut dyn Env) -> Result<Vec<Box<dyn Block>>, StackError> {
        let complete = self.complete(facts)?;
        let mut site = Site { facts, env, link: None, packet_bytes: usize::from(facts.mtu) };
        let mut blocks = Vec::with_capacity(complete.blocks.len());
        for call in &complete.blocks {
            if call.kind.layer == Layer::Link {
                site.packet_bytes += LINK_HEADER_BYTES;
            }
            blocks.push((call.kind.build)(&call.given, &mut site)?);
            if call.kind.layer != Layer::Any {
                site.link = call.kind.link;
            }
        }
        Ok(blocks)
    }
}

/// Bytes that a link puts in front of an IP packet.
const LINK_HEADER_BYTES: usize = packet::ethernet::Packet::HEADER_BYTES;

/// The blocks of a chain. Other parts of the request grammar are errors.
fn calls(chain: &Chain) -> Result<Vec<&FilterCall>, StackError> {
    let only_blocks = |span: Span| {
        Diagnostic::new("a stack is one chain of blocks", span).with_help("write: udp 4000 | ipv4 | ethernet")
    };
    let mut calls = Vec::with_capacity(chain.links.len());
    for Link { edge, term } in &chain.links {
        if let Some(edge) = edge
            && (edge.cut || edge.select.is_some())
        {
            return Err(only_blocks(edge.span).with_label("blocks are joined by `|` alone"));
        }
        match term {
            Term::Filter(call) => calls.push(call),
            Term::Group(_) | Term::Ref(_) | Term::Or(_) | Term::And(_) | Term::Not(_) => {
                return Err(only_blocks(term.span()).with_label("not a block"));
            }
        }
    }
    Ok(calls)
}

impl Call {
    fn of_kind(kind: &'static Kind) -> Call {
        Call { kind, given: Given::new(kind.params, Span::NONE) }
    }

    fn read(call: &FilterCall) -> Result<Call, StackError> {
        let kind = find(&call.name)?;
        if let Some(label) = &call.label {
            return Err(Diagnostic::new("blocks of a stack have no names", label.span));
        }
        let mut given = Given::new(kind.params, call.span);
        let mut mains = kind.params.iter().filter(|param| param.is_main);
        for value in &call.main {
            let Some(param) = mains.next() else {
                return Err(match given.values.is_empty() {
                    true => Diagnostic::new(format!("`{}` takes no plain value", kind.name), value.span),
                    false => Diagnostic::new(format!("`{}` is one value too many", value.text), value.span),
                }
                .with_help(known_keys(kind)));
            };
            read_value(&mut given, param, value)?;
        }
        for request::Param { key, value } in &call.params {
            let Some(param) = kind.params.iter().find(|param| param.key == key.text) else {
                let guess = nearest(&key.text, kind.params.iter().map(|param| param.key));
                let guess = guess.map_or(String::new(), |guess| format!("; did you mean `{guess}`?"));
                return Err(Diagnostic::new(
                    format!("`{}` has no parameter `{}`{guess}", kind.name, key.text),
                    key.span,
                )
                .with_label("unknown parameter")
                .with_help(known_keys(kind)));
            };
            if given.get(param.key).is_some() {
                return Err(Diagnostic::new(format!("{} is given twice", param.key), key.span));
            }
            read_value(&mut given, param, value)?;
        }
        if let Some(param) = kind.params.iter().find(|param| param.is_needed && given.get(param.key).is_none()) {
            return Err(Diagnostic::new(format!("`{}` needs a {}", kind.name, param.key), call.span)
                .with_label(param.help)
                .with_help(format!("write: {} {}", kind.name, param.key.to_uppercase())));
        }
        Ok(Call { kind, given })
    }

    /// The block as text, plain values first.
    fn text(&self) -> String {
        let mut call = FilterCall::new(self.kind.name, []);
        for param in self.kind.params {
            let Some(value) = self.given.get(param.key) else { continue };
            let value = value.text();
            if self.given.default_of(param.key).is_some_and(|default| default.to_string() == value) {
                continue;
            }
            let value = request::Value { quoted: true, ..request::Value::new(value) };
            match param.is_main {
                true => call.main.push(value),
                false => call.params.push(request::Param { key: Name::new(param.key), value }),
            }
        }
        call.to_string()
    }
}

fn find(name: &Name) -> Result<&'static Kind, StackError> {
    if let Some(kind) = KINDS.iter().find(|kind| kind.name == name.text) {
        return Ok(kind);
    }
    let names = || KINDS.iter().map(|kind| kind.name);
    let error = |message| Diagnostic::new(message, name.span).with_label("unknown block");
    Err(match nearest(&name.text, names()) {
        Some(guess) => error(format!("no block `{}`; did you mean `{guess}`?", name.text)),
        None => {
            let all = names().collect::<Vec<_>>().join(", ");
            error(format!("no block `{}`", name.text)).with_help(format!("there are: {all}"))
        }
    })
}

fn read_value(given: &mut Given, param: &'static Param, value: &request::Value) -> Result<(), StackError> {
    if let Some(variable) = value.variables.first() {
        return Err(Diagnostic::new("a stack has no variables", variable.name.span));
    }
    let read = param.form.read(&value.text).map_err(|expected| {
        Diagnostic::new(format!("`{}` is no {}", value.text, param.help), value.span).with_label(expected)
    })?;
    given.values.push((param.key, read, value.span));
    Ok(())
}

fn known_keys(kind: &Kind) -> String {
    if kind.params.is_empty() {
        return format!("`{}` has no parameters", kind.name);
    }
    let forms = kind.params.iter().map(|param| match (param.is_main, param.is_needed) {
        (true, true) => param.key.to_uppercase(),
        (true, false) => format!("[{}]", param.key.to_uppercase()),
        (false, _) => format!("[{}=...]", param.key),
    });
    format!("write: {} {}", kind.name, forms.collect::<Vec<_>>().join(" "))
}

/// Checks that each layer comes once and in order, and that the first block can talk to the application.
fn check_order(blocks: &[Call]) -> Result<(), StackError> {
    let mut protocols = blocks.iter().filter(|call| call.kind.layer != Layer::Any);
    let Some(mut above) = protocols.next() else {
        let span = blocks.first().map_or(Span::NONE, |call| call.given.span);
        return Err(Diagnostic::new("this stack has no protocol", span).with_help(TOPS));
    };
    // Check the order first: it is the actual mistake in `ipv4 | udp 4000`.
    let first = above;
    for call in protocols {
        let (upper, lower) = (above.kind, call.kind);
        if lower.layer == upper.layer {
            let message = format!("`{}` and `{}` are both {}", upper.name, lower.name, lower.layer.name());
            return Err(Diagnostic::new(message, call.given.span).with_label("a stack has one of each layer"));
        }
        if lower.layer < upper.layer {
            let message = format!("`{}` cannot stand below `{}`", lower.name, upper.name);
            return Err(Diagnostic::new(message, call.given.span)
                .with_label("wrong order")
                .with_help("the application's end stands first: udp 4000 | ipv4 | ethernet"));
        }
        above = call;
    }
    if !first.kind.is_top {
        let message = format!("`{}` does not talk to an application", first.kind.name);
        return Err(Diagnostic::new(message, first.given.span)
            .with_label("needs a transport protocol above it")
            .with_help(TOPS));
    }
    Ok(())
}

const TOPS: &str = "begin with `udp PORT` or `icmp`";

/// A protocol still to insert: position, the block that needs it, and its name.
type Missing<'a> = Option<(usize, &'a Call, &'static str)>;

/// Inserts missing protocols before the protocol `next`, below the block that needs them. `None`: the text's end.
fn add_missing(
    blocks: &mut Vec<Call>,
    missing: &mut Missing<'_>,
    next: Option<&Call>,
    facts: &Facts,
) -> Result<(), StackError> {
    while let Some((at, above, name)) = *missing {
        let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else { return Ok(()) };
        if next.is_some_and(|next| next.kind.name == name) {
            return Ok(());
        }
        if let Some(next) = next
            && next.kind.layer <= kind.layer
        {
            let message = format!("`{}` does not carry `{}`", next.kind.name, above.kind.name);
            return Err(Diagnostic::new(message, next.given.span).with_label("wrong protocol").with_help(format!(
                "`{}` stands on `{name}` in this flow, whose address is {}",
                above.kind.name, facts.address
            )));
        }
        blocks.insert(at.min(blocks.len()), Call::of_kind(kind));
        *missing = kind.below.map(|below| (at + 1, above, below.name(facts)));
    }
    Ok(())
}
