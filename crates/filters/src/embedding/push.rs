//! Sources of the blocks that the embedding program pushes.

use super::{Exchange, Pushed};
use filter::prelude::*;
use packet::flow::Flow;
use packet::link::LinkType;
use std::net::SocketAddr;
use std::time::Duration;

/// What `push_frames` is.
pub static FRAMES: Kind = Kind::new("push_frames", "gives frames that the embedding program pushes", make_frames)
    .help("`link` is the link type of the frames as captures number it: 1 for Ethernet, 101 for packets without a link layer.")
    .params(&[Param::new("link", ParamType::Number, "link type of the frames").default("1").main()])
    .source(Type::Frame)
    .runs_in(Spaces::APP);

/// What `push_bytes` is.
pub static BYTES: Kind =
    Kind::new("push_bytes", "gives pieces of byte streams that the embedding program pushes", make_bytes)
        .help("There is one stream at a time; after its end the next piece begins another.")
        .params(OF_STREAMS)
        .source(Type::Bytes)
        .runs_in(Spaces::APP);

/// What `push_messages` is.
pub static MESSAGES: Kind =
    Kind::new("push_messages", "gives messages that the embedding program pushes", make_messages)
        .help("A message has no metadata of its own, as a datagram has none. All messages belong to one stream.")
        .params(OF_STREAMS)
        .source(Type::Message)
        .runs_in(Spaces::APP);

const OF_STREAMS: &[Param] = &[
    Param::new("client", ParamType::Text, "address and port of the client: 10.0.0.1:40000").default("0.0.0.0:0"),
    Param::new("server", ParamType::Text, "address and port of the server: 10.0.0.2:80").default("0.0.0.0:0"),
];

fn make_frames(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    // As in `give`, the session replaces this instance, which only checks the parameters.
    instance(&FRAMES, params, Exchange::default())
}

fn make_bytes(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    instance(&BYTES, params, Exchange::default())
}

fn make_messages(params: &Params, _env: &Env) -> Result<Instance, ParamError> {
    instance(&MESSAGES, params, Exchange::default())
}

/// A source of `kind` that gives the blocks pushed into `exchange`.
pub fn instance(kind: &Kind, params: &Params, exchange: Exchange) -> Result<Instance, ParamError> {
    if kind.output(Types::NONE, params).has(Type::Frame) {
        link_type(params)?;
        return Ok(Instance::source(PushFrames { exchange, taken: Vec::new() }));
    }
    let (client, server) = (address(params, "client")?, address(params, "server")?);
    let protocol = if kind.output(Types::NONE, params).has(Type::Bytes) {
        packet::frame::protocol::TCP
    } else {
        packet::frame::protocol::UDP
    };
    let (source, target) = (client.ip(), server.ip());
    let flow = Flow { source, target, source_port: client.port(), target_port: server.port(), protocol };
    let is_message = kind.output(Types::NONE, params).has(Type::Message);
    Ok(Instance::source(PushStreams { exchange, flow, is_message, stream: None, taken: Vec::new() }))
}

/// The link type that `push_frames` gives its frames.
pub fn link_type(params: &Params) -> Result<u16, ParamError> {
    let number = params.number("link").unwrap_or(u64::from(LinkType::ETHERNET.0));
    u16::try_from(number)
        .map_err(|_| ParamError::new("link", format!("a link type has 16 bits, and {number} has more")))
}

fn address(params: &Params, key: &'static str) -> Result<SocketAddr, ParamError> {
    let text = params.text(key).unwrap_or_default();
    text.parse().map_err(|_| {
        ParamError::new(key, format!("`{text}` is no address with a port"))
            .with_help("10.0.0.1:80, or [2001:db8::1]:80")
    })
}

/// Takes the pushed blocks, and returns the answer of `pull`.
fn take(exchange: &Exchange, taken: &mut Vec<Pushed>) -> Pull {
    let mut sides = exchange.sides();
    std::mem::swap(&mut sides.pushed, taken);
    match (taken.is_empty(), sides.has_ended) {
        (false, _) => Pull::Ready,
        (true, false) => Pull::Idle(Duration::MAX),
        (true, true) => Pull::End,
    }
}

struct PushFrames {
    exchange: Exchange,
    /// Reused by every pull.
    taken: Vec<Pushed>,
}

impl Source for PushFrames {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        let pull = take(&self.exchange, &mut self.taken);
        cx.out.extend(self.taken.drain(..).map(|pushed| pushed.block));
        Ok(pull)
    }
}

struct PushStreams {
    exchange: Exchange,
    flow: Flow,
    is_message: bool,
    /// The open stream.
    stream: Option<Open>,
    /// Reused by every pull.
    taken: Vec<Pushed>,
}

#[derive(Clone, Copy)]
struct Open {
    number: u32,
    /// Time of the stream's last block.
    time: u64,
    /// By direction. Bytes: a block has come. Messages: a message has begun and not ended.
    under_way: [bool; 2],
}

impl PushStreams {
    fn give(&mut self, pushed: &Pushed, cx: &mut Context<'_>) {
        let mut block = pushed.block;
        if self.stream.is_none() {
            let facts = StreamFacts::new(self.flow, block.time, StreamState::Established);
            let number = cx.streams.open(facts);
            self.stream = number.map(|number| Open { number, time: block.time, under_way: [false; 2] });
        }
        let Some(stream) = &mut self.stream else {
            cx.counters.blocks_in += 1;
            return cx.drop(1, "more streams than there are numbers");
        };
        let direction = u8::from(pushed.from_server);
        block.class = Class::of_stream(stream.number, direction);
        stream.time = block.time;
        let under_way = &mut stream.under_way[usize::from(direction)];
        if !std::mem::replace(under_way, !self.is_message || pushed.more) {
            block.add_flags(Flags::FIRST);
        }
        if self.is_message && !pushed.more {
            block.add_flags(Flags::LAST);
        }
        cx.emit(block);
        if pushed.last {
            self.end(Flags::LAST, StreamState::Closed, cx);
        }
    }

    /// Ends the open stream: gives an empty last block in each direction under way.
    fn end(&mut self, flags: Flags, state: StreamState, cx: &mut Context<'_>) {
        let Some(stream) = self.stream.take() else { return };
        let classes = [0, 1].map(|direction| Class::of_stream(stream.number, direction));
        if let Some(facts) = cx.streams.get_mut(classes[0]) {
            facts.state = state;
        }
        for (class, _) in classes.into_iter().zip(stream.under_way).filter(|(_, under_way)| *under_way) {
            let mut end = Descriptor { time: stream.time, class, ..Descriptor::default() };
            end.set_flags(flags);
            cx.emit(end);
        }
        cx.streams.close(stream.number);
    }
}

impl Source for PushStreams {
    fn pull(&mut self, cx: &mut Context<'_>) -> Result<Pull, Box<Failure>> {
        let pull = take(&self.exchange, &mut self.taken);
        let mut taken = std::mem::take(&mut self.taken);
        taken.drain(..).for_each(|pushed| self.give(&pushed, cx));
        self.taken = taken;
        if pull == Pull::End {
            // A message that still expects more is cut. A byte stream just ends.
            let flags = if self.is_message { Flags::LAST.with(Flags::TRUNCATED) } else { Flags::LAST };
            self.end(flags, StreamState::Closed, cx);
        }
        Ok(pull)
    }

    fn finish(&mut self, cx: &mut Context<'_>) {
        self.end(Flags::LAST.with(Flags::TRUNCATED), StreamState::Cut, cx);
    }
}
