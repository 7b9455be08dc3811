//! Flows in requests: a request receives from and sends to an interface of the daemon, with a protocol stack of its own.
//!
//! - `flow/source.rs` — `flow` at the beginning of a chain: receives.
//! - `flow/sink.rs` — `flow` behind other filters: sends.
//! - `flow/environment.rs` — files and programs that the text of a stack names.

mod environment;
mod sink;
mod source;

use filter::prelude::*;
use socket::{Connection, SocketError, UdpOptions, UdpSocket};
use std::net::SocketAddr;
use std::sync::Arc;

/// The kind `flow` behind other filters.
pub static KIND: Kind = Kind::new("flow", "sends blocks over a flow of its own; begins a chain: receives from one", sink::make)
    .also(&["socket", "netcat"])
    .help(
        "`flow udp 4000 | count` receives the datagrams for port 4000, and `pcap x.pcap | udp | flow udp to=10.0.0.3:4001` sends \
         each block as a datagram. The interface is one that `streamline net up` gave to the daemon; the daemon's policy says who \
         may open flows on it. The protocol stack runs in this process, and the daemon checks the headers of what it sends: no \
         request can send in another's name.\n\
         \n\
         The first word is the protocol, the second one the local port; without it any port that is free. `to=` is the only peer; \
         without it a flow receives from all. A sink needs it. `stack=` says which blocks the stack has, the application's end \
         first; what it leaves out is completed: `stack=\"udp 4000 | ipv4 | tap here.pcap\"`. `flows` lists connections, `flow` \
         opens one.\n\
         \n\
         A received datagram is a message, and the datagrams of one peer are a stream. A message that comes in several blocks is \
         sent as one datagram, a piece of a byte stream as one or more. While the channel to the driver is full, the request \
         waits. What does not fit a datagram, and what the driver refuses, is dropped and counted by its reason.",
    )
    .params(PARAMS)
    .notes(whole_stack)
    .takes(&[Type::Message, Type::Bytes])
    .mode(Mode::Serial)
    .sink()
    .completes(check)
    .leaves_nothing()
    .first(&SOURCE);

/// The kind `flow` at the beginning of a chain.
static SOURCE: Kind = Kind::new("flow", "receives from a flow of its own", source::make)
    .params(PARAMS)
    .notes(whole_stack)
    .source(Type::Message)
    .completes(check)
    .leaves_nothing()
    .runs_in(Spaces::APP);

const PARAMS: &[Param] = &[
    Param::new("protocol", ParamType::List, "the protocol, and the local port: udp 4000").required().main(),
    Param::new("to", ParamType::Text, "address and port of the only peer: 10.0.0.3:4000, [fd00::3]:4000"),
    Param::new("device", ParamType::Text, "the interface; the one that routes to the peer if not given"),
    Param::new("stack", ParamType::Text, "the blocks of the protocol stack"),
    Param::new(
        "slice",
        ParamType::Text,
        "its share of the wire: 4ms/100ms, 4ms/100ms+slack, fair:3 or background; fair if not given",
    ),
];

/// The socket options that the parameters ask for.
fn options(params: &Params) -> Result<UdpOptions, ParamError> {
    let port = match params.list("protocol") {
        [protocol] if protocol == "udp" => 0,
        [protocol, port] if protocol == "udp" => port
            .parse()
            .map_err(|_| ParamError::new("protocol", format!("`{port}` is no port: a number from 0 to 65535")))?,
        [protocol, ..] if protocol != "udp" => {
            return Err(ParamError::new("protocol", format!("`{protocol}` is no protocol that flows have"))
                .with_help("flow udp 4000; `flows` lists the connections of a capture"));
        }
        _ => {
            return Err(ParamError::new("protocol", "a flow has a protocol and a port, and nothing behind them")
                .with_help("flow udp 4000 to=10.0.0.3:4000; `flows` lists the connections of a capture"));
        }
    };
    let peer = params.text("to").map(|text| {
        text.parse::<SocketAddr>().map_err(|_| {
            ParamError::new("to", format!("`{text}` is no address with a port"))
                .with_help("to=10.0.0.3:4000, or to=[fd00::3]:4000")
        })
    });
    Ok(UdpOptions {
        device: params.text("device").map(str::to_string),
        address: None,
        port,
        peer: peer.transpose()?,
        stack: params.text("stack").map(str::to_string),
        share: params.text("slice").map(str::to_string),
        on_change: None,
    })
}

/// Checks everything that needs no daemon.
fn check(params: &mut Params) -> Result<(), ParamError> {
    options(params)?.check().map_err(refused)
}

/// For `explain`: the whole stack, with the parts that the request leaves out.
fn whole_stack(params: &Params) -> Option<String> {
    Some(format!("its stack: {}", options(params).ok()?.stack_text("DEVICE").ok()?))
}

fn open(params: &Params, env: &Env) -> Result<UdpSocket, ParamError> {
    let options = options(params)?;
    let daemon = env.daemon.as_deref().ok_or_else(|| {
        ParamError {
            key: Some("protocol"),
            ..ParamError::system("flows are the daemon's to give, and no daemon runs here")
        }
        .with_help("`streamline daemon`, then `streamline net up DEVICE --addr ADDRESS/BITS`; or `run --daemon PATH`")
    })?;
    let purpose = format!("flow {}", params.list("protocol").join(" "));
    let connection = Connection::open(daemon, &purpose).map_err(refused)?;
    UdpSocket::open(Arc::new(connection), &options, &mut environment::Files(env)).map_err(refused)
}

fn refused(error: SocketError) -> ParamError {
    match error {
        SocketError::Stack { error, .. } => {
            let wrong = ParamError::new("stack", error.message).within(error.span.start..error.span.end);
            ParamError { help: error.help, ..wrong }
        }
        SocketError::Mismatch(message) => ParamError::new("stack", message),
        other => ParamError { key: Some("protocol"), ..ParamError::system(other.to_string()) },
    }
}

/// The failure of a run whose flow broke.
fn failure(error: &SocketError) -> Box<Failure> {
    Box::new(Failure::System(format!("flow: {error}")))
}
