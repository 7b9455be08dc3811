//! Kinds that exist only in these tests, with every property that the control plane reads. They cannot run.

use control::difference::Difference;
use control::place::{Placing, Refused};
use control::transaction::Failed;
use control::{Design, Graph, Registry, Transaction, checked, whole};
use filter::prelude::*;
use request::{Diagnostic, Text};
use testkit::FussySpace;

fn nothing(_: &Params, _: &Env) -> Result<Instance, ParamError> {
    Err(ParamError::system("these kinds only take part in planning"))
}

static ROWS: Schema = Schema::new("rows", &[Field::new("n", FieldType::Number)]);
static FILE: [Param; 2] = [
    Param::new("file", ParamType::List, "what to read").main().required(),
    Param::new("follow", ParamType::Flag, "keep reading").default("no"),
];
static EXPR: [Param; 1] = [Param::new("expr", ParamType::Text, "an expression").main().required()];
static POLICIES: [Param; 1] = [Param::new("policy.", ParamType::List, "of a network")];
static NUMBER: [Param; 1] = [Param::new("number", ParamType::Number, "a port").main()];
static DIR: [Param; 2] = [
    Param::new("dir", ParamType::Path, "where to").main().required(),
    Param::new("hash", ParamType::Flag, "how").default("yes"),
];

/// If the tests have a daemon, it runs more than programs.
const IN_DAEMON: Spaces = Spaces::UNPRIVILEGED.with(Spaces::DAEMON);

static PCAP: Kind = Kind::new("pcap", "a source", nothing).source(Type::Frame).params(&FILE).runs_in(IN_DAEMON);
static DEVICES: [Param; 2] = [
    Param::new("devices", ParamType::List, "two devices").main(),
    Param::new("buffer", ParamType::Size, "what only the source has").default("8M"),
];
static BRIDGE: Kind = Kind::new("bridge", "a sink of a source's", nothing)
    .takes(&[Type::Frame])
    .params(DEVICES.first_chunk::<1>().unwrap())
    .sink()
    .first(&BRIDGED);
static BRIDGED: Kind = Kind::new("bridge", "a source with a sink of its own", nothing)
    .source(Type::Frame)
    .params(&DEVICES)
    .class(ClassUse::Sets("side"))
    .returns("bridge");
static IPS: Kind = Kind::new("ips", "rejects what passes", nothing)
    .takes(&[Type::Frame])
    .gives_records(&ROWS)
    .passes_rejects()
    .mode(Mode::Serial);
static BPF: Kind = Kind::new("bpf", "a selector with expressions", nothing)
    .takes(&[Type::Frame])
    .params(&EXPR)
    .selects()
    .expression("expr")
    .runs_in(IN_DAEMON.with(Spaces::KERNEL));
static PORT: Kind = Kind::new("port", "sets two halves", nothing)
    .takes(&[Type::Frame])
    .params(&NUMBER)
    .selects()
    .class(ClassUse::SetsHalves("source and destination port"))
    .runs_in(IN_DAEMON);
static VLAN: Kind = Kind::new("vlan", "sets one number", nothing)
    .takes(&[Type::Frame])
    .selects()
    .class(ClassUse::Sets("VLAN id"))
    .runs_in(IN_DAEMON);
static IP: Kind =
    Kind::new("ip", "a selector that keeps the class", nothing).takes(&[Type::Frame]).selects().runs_in(IN_DAEMON);
static HEAD: Kind = Kind::new("head", "no selector", nothing).mode(Mode::Serial).runs_in(IN_DAEMON);
static TCP: Kind = Kind::new("tcp", "makes streams", nothing)
    .takes(&[Type::Frame, Type::Packet])
    .rejects()
    .gives(Type::Bytes)
    .class(ClassUse::Sets("stream"))
    .mode(Mode::Serial)
    .parses_payload();
static UDP: Kind = Kind::new("udp", "makes flows", nothing)
    .takes(&[Type::Frame])
    .rejects()
    .gives(Type::Message)
    .class(ClassUse::Sets("stream"))
    .mode(Mode::Serial)
    .parses_payload();
static HTTP: Kind = Kind::new("http", "wants tcp", nothing)
    .takes(&[Type::Bytes])
    .rejects()
    .gives_messages(&ROWS)
    .wants(&[(Type::Frame, "tcp")])
    .mode(Mode::Session(SessionKey::Connection))
    .parses_payload();
static DNS: Kind = Kind::new("dns", "wants both", nothing)
    .takes(&[Type::Bytes, Type::Message])
    .gives_records(&ROWS)
    .wants(&[(Type::Frame, "{ udp + tcp }")])
    .mode(Mode::Session(SessionKey::Class))
    .parses_payload();
static COUNT: Kind =
    Kind::new("count", "gives a record", nothing).gives_records(&ROWS).mode(Mode::Serial).runs_in(IN_DAEMON);
static FILES: Kind = Kind::new("files", "a sink", nothing).params(&DIR).sink().restarts();
static JSON: Kind = Kind::new("json", "a sink of records", nothing).takes(&[Type::Record, Type::Message]).sink();
static INSPECT: Kind = Kind::new("inspect", "a sink of anything", nothing).sink();

static DECAP: Kind = Kind::new("decap", "stands before others", nothing)
    .takes(&[Type::Frame])
    .params(&POLICIES)
    .mode(Mode::Serial)
    .parses_payload();
static SCTP: Kind = Kind::new("sctp", "stands behind another", nothing)
    .takes(&[Type::Frame])
    .rejects()
    .gives(Type::Message)
    .behind("decap")
    .mode(Mode::Serial)
    .parses_payload();

static KINDS: [&Kind; 18] = [
    &PCAP, &BPF, &PORT, &VLAN, &IP, &HEAD, &TCP, &UDP, &HTTP, &DNS, &COUNT, &FILES, &JSON, &INSPECT, &DECAP, &SCTP,
    &BRIDGE, &IPS,
];

pub fn registry() -> Registry {
    static LISTS: [&[&Kind]; 1] = [&KINDS];
    Registry::new(&LISTS).without(&[("parquet", "it is in another build")])
}

/// Places a graph by the offers of these spaces.
pub fn placed(graph: Graph, spaces: &[FussySpace], refused: &Refused) -> Result<Design, Diagnostic> {
    let names: Vec<_> = spaces.iter().map(FussySpace::what).collect();
    let mut placing = Placing::new(&graph, &names, refused)?;
    while let Some(asked) = placing.ask() {
        placing.put(&spaces.iter().map(|space| space.offer(&asked)).collect::<Vec<_>>())?;
    }
    let (plan, sites) = placing.done();
    Ok(Design { plan, sites, graph })
}

/// From an expanded tree to a placed and checked design.
pub fn design(text: &Text, registry: &Registry, spaces: &[FussySpace]) -> Result<Design, Diagnostic> {
    let design = placed(checked(text, registry)?, spaces, &Refused::default())?;
    whole::check(&design).map(|()| design)
}

/// Carries a design out in these spaces.
pub fn carry_out(design: &Design, running: Option<&Design>, spaces: &[FussySpace]) -> Result<Difference, Failed> {
    let mut transaction = Transaction::new(design, running);
    while let Some((name, order)) = transaction.order() {
        let space = spaces.iter().find(|space| space.what().0 == name).expect("a design is placed in these spaces");
        transaction.answer(space.follow(&order, &design.plan));
    }
    transaction.end()
}
