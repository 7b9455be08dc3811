//! The static description of a block: name, parameters, place in a stack, and how to build it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use packet::LinkType;
use request::{Diagnostic, Span};

use crate::block::Block;
use crate::facts::{Env, Facts};

/// A block's place in a stack. Layers come in this order, the application's end first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// Ports and the like: this layer talks to the application.
    Transport,
    /// Addresses of hosts.
    Network,
    /// Addresses of devices on one link.
    Link,
    /// Anywhere, any number of times.
    Any,
}

impl Layer {
    /// Plural of the layer's name, for messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Layer::Transport => "transport protocols",
            Layer::Network => "network protocols",
            Layer::Link => "links",
            Layer::Any => "blocks for any place",
        }
    }
}

/// The description of a block.
pub struct Kind {
    /// Its name in a stack's text.
    pub name: &'static str,
    /// One line for people.
    pub help: &'static str,
    /// Its place.
    pub layer: Layer,
    /// Whether a stack may begin with it, so that it talks to the application.
    pub is_top: bool,
    /// The protocol below it. `None` if there is none, or if any may be there.
    pub below: Option<Below>,
    /// The link type of packets below this block. `None` if capture files have none for it.
    pub link: Option<LinkType>,
    /// Its parameters.
    pub params: &'static [Param],
    /// Checks the parameters against the facts, and fills in those that the facts decide. `None`: not needed.
    pub complete: Option<Complete>,
    /// Builds the block.
    pub build: Build,
}

/// The protocol below a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    /// `ipv4` or `ipv6`: the family of the flow's address decides.
    Ip,
    /// The block of this name.
    Block(&'static str),
}

impl Below {
    pub(crate) fn name(self, facts: &Facts) -> &'static str {
        match self {
            Below::Ip if facts.address.is_ipv4() => "ipv4",
            Below::Ip => "ipv6",
            Below::Block(name) => name,
        }
    }
}

/// Checks the parameters of a block against the facts, and fills some in.
pub type Complete = fn(&mut Given, &Facts) -> Result<(), Diagnostic>;

/// Builds a block from its parameters.
pub type Build = fn(&Given, &mut Site<'_>) -> Result<Box<dyn Block>, Diagnostic>;

/// One parameter of a block.
#[derive(Debug)]
pub struct Param {
    /// Its key.
    pub key: &'static str,
    /// It is the plain value after the block's name.
    pub is_main: bool,
    /// The block requires it.
    pub is_needed: bool,
    /// The values that it accepts.
    pub form: Form,
    /// One line for people.
    pub help: &'static str,
}

/// The values that a parameter accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A number: least, most, and the default if there is one.
    Number(u32, u32, Option<u32>),
    /// An address and a port, neither of them 0. An IPv6 address stands in brackets.
    Endpoint,
    /// Any text that is not empty.
    Text,
}

impl Form {
    /// Parses a value; the error says what is expected.
    pub(crate) fn read(self, text: &str) -> Result<Value, String> {
        match self {
            Form::Number(least, most, _) => match text.parse::<u32>() {
                Ok(number) if (least..=most).contains(&number) => Ok(Value::Number(number)),
                _ => Err(format!("expected a number from {least} to {most}")),
            },
            Form::Endpoint => match text.parse::<SocketAddr>() {
                Ok(endpoint) if endpoint.port() != 0 && !endpoint.ip().is_unspecified() => {
                    // Drops the IPv6 scope: the flow's device implies it.
                    Ok(Value::Endpoint(SocketAddr::new(endpoint.ip(), endpoint.port())))
                }
                _ => Err("expected an address and a port, as in 10.0.0.1:53 or [fd00::1]:53".into()),
            },
            Form::Text if text.is_empty() => Err("expected a text".into()),
            Form::Text => Ok(Value::Text(text.to_owned())),
        }
    }
}

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// For [`Form::Number`].
    Number(u32),
    /// For [`Form::Endpoint`].
    Endpoint(SocketAddr),
    /// For [`Form::Text`].
    Text(String),
}

impl Value {
    pub(crate) fn text(&self) -> String {
        match self {
            Value::Number(number) => number.to_string(),
            Value::Endpoint(endpoint) => endpoint.to_string(),
            Value::Text(text) => text.clone(),
        }
    }
}

/// The parameter values of one block.
#[derive(Clone, Debug)]
pub struct Given {
    pub(crate) params: &'static [Param],
    /// Key, value and place, in the order of the text.
    pub(crate) values: Vec<(&'static str, Value, Span)>,
    /// Where the block stands in the text; an empty span if completion added it.
    pub span: Span,
}

impl Given {
    pub(crate) fn new(params: &'static [Param], span: Span) -> Given {
        Given { params, values: Vec::new(), span }
    }

    /// The value of a parameter; `None` if it has none.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.iter().find(|(known, ..)| *known == key).map(|(_, value, _)| value)
    }

    /// Where a parameter's value stands in the text; the block's own place if it is not written.
    pub fn span_of(&self, key: &str) -> Span {
        self.values.iter().find(|(known, ..)| *known == key).map_or(self.span, |(.., span)| *span)
    }

    /// The number of a parameter: the given one, else its default, else 0.
    pub fn number(&self, key: &str) -> u32 {
        match self.get(key) {
            Some(Value::Number(number)) => *number,
            _ => self.default_of(key).unwrap_or(0),
        }
    }

    /// The text of a parameter; `None` if it has none.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The endpoint of a parameter; `None` if it has none.
    pub fn endpoint(&self, key: &str) -> Option<SocketAddr> {
        match self.get(key)? {
            Value::Endpoint(endpoint) => Some(*endpoint),
            _ => None,
        }
    }

    /// Fills in a value that the text does not give. Ignores a key that the block does not have.
    pub fn fill(&mut self, key: &str, value: Value) {
        if let Some(param) = self.params.iter().find(|param| param.key == key)
            && self.get(key).is_none()
        {
            self.values.push((param.key, value, Span::NONE));
        }
    }

    pub(crate) fn default_of(&self, key: &str) -> Option<u32> {
        let param = self.params.iter().find(|param| param.key == key)?;
        match param.form {
            Form::Number(_, _, default) => default,
            Form::Endpoint | Form::Text => None,
        }
    }
}

/// What a block gets when it is built.
pub struct Site<'a> {
    /// The device and the flow's addresses.
    pub facts: &'a Facts,
    /// Access to I/O.
    pub env: &'a mut dyn Env,
    /// The link type of packets here. `None` if no header above has one that captures know.
    pub link: Option<LinkType>,
    /// Most bytes of a packet here.
    pub packet_bytes: usize,
}

impl Site<'_> {
    /// The flow's address for the block `name`, which requires IPv4.
    pub(crate) fn ipv4(&self, name: &str, span: Span) -> Result<Ipv4Addr, Diagnostic> {
        match self.facts.address {
            IpAddr::V4(address) => Ok(address),
            IpAddr::V6(_) => Err(self.other_family(name, "IPv4", span)),
        }
    }

    /// The flow's address for the block `name`, which requires IPv6.
    pub(crate) fn ipv6(&self, name: &str, span: Span) -> Result<Ipv6Addr, Diagnostic> {
        match self.facts.address {
            IpAddr::V6(address) => Ok(address),
            IpAddr::V4(_) => Err(self.other_family(name, "IPv6", span)),
        }
    }

    fn other_family(&self, name: &str, family: &str, span: Span) -> Diagnostic {
        let message = format!("`{name}` is for {family}, and this flow's address is {}", self.facts.address);
        Diagnostic::new(message, span).with_label("of another family than the flow")
    }

    /// The link type of packets here. The error says where the block `name` belongs.
    pub fn link_for(&self, name: &str, span: Span) -> Result<LinkType, Diagnostic> {
        self.link.ok_or_else(|| {
            Diagnostic::new(format!("`{name}` sees no packets here"), span)
                .with_label("above the IP header")
                .with_help(format!("put `{name}` behind `ipv4`, `ipv6` or `ethernet`"))
        })
    }
}
